module sleeper

go 1.19
