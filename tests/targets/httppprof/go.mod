module httppprof

go 1.19
