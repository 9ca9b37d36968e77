module execer

go 1.19
