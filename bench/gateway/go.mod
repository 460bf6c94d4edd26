module github.com/tideover/tideover/bench/gateway

go 1.26.0
