//go:build unix

package nip90_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest/suite"
)

func TestMain(m *testing.M) {
	suite.Main(m, map[string]func([]string){
		"helper:relay": helpRelay,
	})
}
