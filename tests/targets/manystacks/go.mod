module manystacks.example/steps

go 1.19
