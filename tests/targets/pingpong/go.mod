module pingpong

go 1.19
