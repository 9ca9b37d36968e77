module idle

go 1.19
