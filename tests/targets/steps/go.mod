module steps.example/steps

go 1.19
