package archive

import (
	"context"
	"errors"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Lock is S3's object lock on each object of an artifact
// (docs.aws.amazon.com/AmazonS3/latest/userguide/object-lock.html).
type Lock struct {
	// Mode is governance or compliance.
	Mode string
	// For is how long an object is kept from the moment that its upload begins.
	For time.Duration
}

// Check says what is wrong with a lock on what is stored there.
func (l *Lock) Check(place Place) error {
	switch u, err := stores.ParseURL(place.URL); {
	case err != nil:
		return err
	case u.Scheme != stores.S3:
		return errors.New("only S3 locks objects")
	case l.Mode != "governance" && l.Mode != "compliance":
		return errors.New("the mode is governance or compliance")
	case l.For < time.Minute:
		return errors.New("the time is a minute or more")
	}
	return nil
}

// put asks for the lock with the upload. S3 takes no upload with a lock that has no checksum, even where the store
// says WhenRequired (docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html).
func (l *Lock) put(as func(any) bool) error {
	var upload *transfermanager.UploadObjectInput
	if l == nil || !as(&upload) {
		return nil
	}
	until := time.Now().UTC().Add(l.For).Truncate(time.Second)
	upload.ObjectLockMode = types.ObjectLockMode(strings.ToUpper(l.Mode))
	upload.ObjectLockRetainUntilDate = &until
	upload.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
	return nil
}

// retentions are the words by which stores refuse because of a retention: Amazon's and versitygw's, MinIO's, which
// have no code of their own; Google's code; and Microsoft's.
var retentions = []string{"object protected by object lock", "WORM protected", "retentionPolicyNotMet",
	"BlobImmutableDueToPolicy"}

// changeFailure is storeFailure of what replaces or deletes an object: the store may keep that by a retention.
func (s *store) changeFailure(ctx context.Context, key string, refusal error, doing string) error {
	if !says(refusal, retentions) {
		return s.storeFailure(refusal, doing)
	}
	until := s.retainedUntil(ctx, key)
	if until != "" {
		until = " until " + until
	}
	return failure(Locked, refusal, "%s: the store keeps it%s, by a retention such as an object lock", doing, until)
}

// retainedUntil is when the retention of an object ends, for people; empty when it is not known.
func (s *store) retainedUntil(ctx context.Context, key string) string {
	found, err := s.bucket.Attributes(ctx, key)
	if err != nil {
		return ""
	}
	var amazon s3.HeadObjectOutput
	var google storage.ObjectAttrs
	var until time.Time
	switch {
	case found.As(&amazon) && amazon.ObjectLockLegalHoldStatus == s3types.ObjectLockLegalHoldStatusOn:
		return "its legal hold ends"
	case found.As(&amazon) && amazon.ObjectLockRetainUntilDate != nil:
		until = *amazon.ObjectLockRetainUntilDate
	case found.As(&google):
		until = google.RetentionExpirationTime
	}
	if until.IsZero() {
		return ""
	}
	return until.UTC().Format(time.RFC3339)
}
