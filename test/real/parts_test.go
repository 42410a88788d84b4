// Package real has what starts a real etcd or a real Kubernetes; here is only the test of how its stories are parted.
package real

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each story on a real Kubernetes belongs to one part of parts.sh, or to the targets that are named there.
func TestEachStoryIsInOnePart(t *testing.T) {
	files, err := filepath.Glob("e2e/*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	stories := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
			stories[match[1]] = 0
		}
	}
	script, err := os.ReadFile("parts.sh")
	require.NoError(t, err)
	told := regexp.MustCompile(`(?m)^ *[a-z0-9*-]+\) echo "?Test.*|^elsewhere=.*`).FindAllString(string(script), -1)
	for _, line := range told {
		for _, story := range regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(line, -1) {
			require.Contains(t, stories, story, "parts.sh names a story that does not exist")
			stories[story]++
		}
	}
	for story, parts := range stories {
		require.Equal(t, 1, parts, "%s: in how many parts of parts.sh it is", story)
	}
}
