module races

go 1.19
