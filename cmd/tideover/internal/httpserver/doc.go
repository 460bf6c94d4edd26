// Package httpserver has the parts that all HTTP handlers of the command share: the check of the
// token, the host and the origin ([Guard]), the Unix socket that only its owner can open
// ([ListenUnix]), time limits ([NewServer], [Timely], [ProgressTimeout]), and a TLS certificate
// that is reloaded when its files change ([Certificate]).
//
// It knows nothing of runs, sessions or providers.
package httpserver
