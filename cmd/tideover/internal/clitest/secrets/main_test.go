//go:build unix

package secrets_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest/suite"
)

func TestMain(m *testing.M) {
	suite.Main(m, nil)
}
