module parked

go 1.19
