module scale.example/crowd

go 1.19
