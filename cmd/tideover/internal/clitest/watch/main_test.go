//go:build unix

package watch_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest/suite"
)

func TestMain(m *testing.M) {
	suite.Main(m, map[string]func([]string){
		"helper:tui": helpTUI,
	})
}
