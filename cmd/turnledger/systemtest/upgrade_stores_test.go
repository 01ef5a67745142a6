package systemtest_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// redisCommand makes a key again. A key that expires has its time left, so that a recording does not grow old.
type redisCommand struct {
	Words [][]byte      `json:"words"`
	Left  time.Duration `json:"left,omitempty"`
}

func dialRedis(t testing.TB, url string) rueidis.Client {
	t.Helper()
	options, err := rueidis.ParseURL(url)
	require.NoError(t, err)
	options.DisableCache = true
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// dumpRedis returns the commands that make all keys of a Redis again.
func dumpRedis(t testing.TB, url string) (out []redisCommand) {
	t.Helper()
	client := dialRedis(t, url)
	do := func(words ...string) rueidis.RedisResult {
		return client.Do(t.Context(), client.B().Arbitrary(words...).Build())
	}
	keys, err := do("KEYS", "*").AsStrSlice()
	require.NoError(t, err)
	for _, key := range keys {
		kind, err := do("TYPE", key).ToString()
		require.NoError(t, err)
		var words []string
		switch kind {
		case "string":
			value, err := do("GET", key).ToString()
			require.NoError(t, err)
			words = []string{"SET", key, value}
		case "hash":
			pairs, err := do("HGETALL", key).AsStrMap()
			require.NoError(t, err)
			words = []string{"HSET", key}
			for field, value := range pairs {
				words = append(words, field, value)
			}
		case "zset":
			members, err := do("ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
			require.NoError(t, err)
			words = []string{"ZADD", key}
			for _, m := range members {
				words = append(words, strconv.FormatFloat(m.Score, 'f', -1, 64), m.Member)
			}
		default:
			require.FailNow(t, "a key of another type", "%s is a %s", key, kind)
		}
		left, err := do("PTTL", key).AsInt64()
		require.NoError(t, err)
		command := redisCommand{Left: time.Duration(max(left, 0)) * time.Millisecond}
		for _, w := range words {
			command.Words = append(command.Words, []byte(w))
		}
		out = append(out, command)
	}
	return out
}

func loadRedis(t testing.TB, url string, commands []redisCommand) {
	t.Helper()
	client := dialRedis(t, url)
	do := func(words ...string) {
		require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(words...).Build()).Error())
	}
	for _, c := range commands {
		var words []string
		for _, w := range c.Words {
			words = append(words, string(w))
		}
		do(words...)
		if c.Left > 0 {
			do("PEXPIRE", words[1], strconv.FormatInt(c.Left.Milliseconds(), 10))
		}
	}
}

// dumpPostgres returns the statements that make a database again, without the settings and the commands of psql that
// another version of PostgreSQL may not know.
func dumpPostgres(t testing.TB, url string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pg_dump", "--inserts", "--no-owner", "--no-privileges", url).Output()
	require.NoError(t, err)
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, `\`) && !strings.HasPrefix(line, "SET ") && !strings.HasPrefix(line, "--") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func execPostgres(t testing.TB, url, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.PgConn().Exec(t.Context(), statements).ReadAll()
	require.NoError(t, err, fmt.Sprint(len(statements), " bytes of SQL"))
}

// unpack writes the files of a tar archive into a folder.
func unpack(dir string, archive io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		raw, err := io.ReadAll(files)
		if err == nil {
			err = root.MkdirAll(filepath.Dir(header.Name), 0o750)
		}
		if err == nil {
			err = root.WriteFile(header.Name, raw, header.FileInfo().Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
}
