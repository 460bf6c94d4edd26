module github.com/tideover/tideover

go 1.26.0
