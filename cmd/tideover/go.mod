module github.com/tideover/tideover/cmd/tideover

go 1.26.0

require (
	github.com/creack/pty v1.1.24
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	github.com/tideover/tideover v0.0.0
	golang.org/x/sys v0.49.0
)

require github.com/inconshreveable/mousetrap v1.1.0 // indirect

replace github.com/tideover/tideover => ../..
