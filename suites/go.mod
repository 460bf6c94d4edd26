module github.com/tideover/tideover/suites

go 1.26.0
