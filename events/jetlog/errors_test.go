package jetlog_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
)

// However many steps an error has passed, it says once that the log is unavailable.
func TestTheLogIsSaidToBeUnavailableOnce(t *testing.T) {
	inner := jetlog.Unavailable("last of a subject", errors.New("no responders"))
	require.EqualError(t, inner, "last of a subject: the log is unavailable: no responders")
	err := jetlog.Unavailable("read session", inner)
	require.ErrorIs(t, err, jetlog.ErrUnavailable)
	require.EqualError(t, err, "read session: last of a subject: the log is unavailable: no responders")
	require.EqualError(t, jetlog.Unavailable("", err), err.Error())
}
