module cgocpu

go 1.19
