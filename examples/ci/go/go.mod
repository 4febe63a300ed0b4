module example.org/transfer

go 1.19
