//go:build unix && !linux

package process

func growPipe(int) {}
