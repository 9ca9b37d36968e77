module brief

go 1.19
