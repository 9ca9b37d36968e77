// This file lets the compiler accept functions without a body: see main.go.
