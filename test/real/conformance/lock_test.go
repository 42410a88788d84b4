//go:build unix && releases

package conformance

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// lockedStores: a snapshot goes into a bucket with S3's object lock, is verified and comes back. With versions of
// objects, as Amazon has it, a deletion hides what the lock keeps; without, the server refuses, and that is told.
func lockedStores(t *testing.T, version string, c *etcdproc.Cluster, a authority) {
	for _, versions := range []bool{true, false} {
		for _, by := range []string{"each object", "the bucket"} {
			name := by + ", one version"
			var options []string
			if versions {
				name, options = by+", versions", []string{"--versioning-dir", t.TempDir()}
			}
			t.Run(name, func(t *testing.T) {
				address, client := serveS3(t, true, options...)
				o := order(t, version, "", c.Members[0].ClientURL)
				o.Place = archive.Place{URL: "s3://backups/etcd" + s3Query + "http://" + address, CAFile: a.file}
				if by == "each object" {
					o.Form.Lock = &archive.Lock{Mode: "governance", For: time.Hour}
				} else {
					lockBucket(t, client)
				}
				lockStory(t, o, client, versions)
			})
		}
	}
}

// lockBucket has the bucket lock each object for a day.
func lockBucket(t *testing.T, client *s3.Client) {
	t.Helper()
	bucket, days := "backups", int32(1)
	_, err := client.PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{Bucket: &bucket,
		ObjectLockConfiguration: &types.ObjectLockConfiguration{ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule: &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Days: &days,
				Mode: types.ObjectLockRetentionModeGovernance}}}})
	require.NoError(t, err)
}

func lockStory(t *testing.T, o archive.Order, client *s3.Client, versions bool) {
	report, err := archive.Take(t.Context(), o)
	require.NoError(t, err)
	assert.False(t, report.VerifiedAt.IsZero(), "it is verified, though its record may not be replaced")
	bucket, key := "backups", "etcd/"+o.Key
	if o.Form.Lock != nil {
		found, err := client.GetObjectRetention(t.Context(), &s3.GetObjectRetentionInput{Bucket: &bucket, Key: &key})
		require.NoError(t, err)
		assert.Equal(t, types.ObjectLockRetentionModeGovernance, found.Retention.Mode)
	}
	_, err = archive.Fetch(t.Context(), archive.Source{URL: report.URI, CAFile: o.Place.CAFile, SHA256: report.SHA256},
		filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)

	err = archive.Discard(context.Background(), o.Place, o.Key)
	if !versions {
		assert.Equal(t, archive.Locked, archive.ReasonOf(err), "%v", err)
		assert.Len(t, objectsIn(t, o.Place), 2, "all of it stays")
		t.Log(err)
		return
	}
	require.NoError(t, err)
	assert.Empty(t, objectsIn(t, o.Place))
	kept, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &key})
	require.NoError(t, err)
	assert.NotEmpty(t, kept.Versions, "the lock keeps it")
}
