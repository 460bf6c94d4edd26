module github.com/tideover/tideover/engine/page

go 1.26.0

require (
	github.com/tideover/tideover v0.0.0
	github.com/tideover/tideover/engine v0.0.0
	github.com/tideover/tideover/internal/console v0.0.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/sys v0.49.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.60.1 // indirect
	zombiezen.com/go/sqlite v1.4.2 // indirect
)

replace (
	github.com/tideover/tideover => ../..
	github.com/tideover/tideover/engine => ../
	github.com/tideover/tideover/internal/console => ../../internal/console
)
