module github.com/tideover/tideover/bench/gateway

go 1.26.0

require github.com/tideover/tideover v0.0.0

replace github.com/tideover/tideover => ../..
