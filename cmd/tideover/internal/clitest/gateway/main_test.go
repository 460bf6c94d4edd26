//go:build unix

package gateway_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest/suite"
)

func TestMain(m *testing.M) {
	suite.Main(m, nil)
}
