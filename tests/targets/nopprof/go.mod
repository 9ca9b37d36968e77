module nopprof

go 1.19
