package archive

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
	oauth "golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// How the stores of clouds are opened. Their openers in gocloud.dev v0.47 that go by a URL alone
// are not used for Microsoft's and Google's: they take parameters by which a token would be sent
// elsewhere, keep the first credentials of a process, and print what they could not read.

func openBucket(ctx context.Context, u stores.URL) (*blob.Bucket, error) {
	switch u.Scheme {
	case stores.S3:
		return new(s3blob.URLOpener).OpenBucketURL(ctx,
			&url.URL{Scheme: u.Scheme, Host: u.Bucket, RawQuery: u.Parameters})
	case stores.Azure:
		return openAzure(ctx, u)
	case stores.Google:
		return openGoogle(ctx, u)
	}
	return nil, failure(Failed, nil, "this kind of store is not supported")
}

// openAzure opens a container. What the URL does not say is in the variables of Azure's own tools.
// Of them AZURE_STORAGE_DOMAIN, AZURE_STORAGE_PROTOCOL and AZURE_STORAGE_IS_LOCAL_EMULATOR lead to
// an emulator: no EtcdSnapshot can set these.
func openAzure(ctx context.Context, u stores.URL) (*blob.Bucket, error) {
	options := azureblob.NewDefaultServiceURLOptions()
	account := u.Parameter("storage_account")
	domain := u.Parameter("domain")
	another := account != "" && account != options.AccountName
	elsewhere := options.AccountName == "" || another || domain != ""
	switch {
	case options.SASToken != "" && elsewhere:
		// The token is part of each request's URL, so it goes only to the account that it was given
		// with.
		return nil, failure(Denied, nil, "the store's AZURE_STORAGE_SAS_TOKEN is sent only to the account that "+
			"AZURE_STORAGE_ACCOUNT names beside it, at blob.core.windows.net: "+
			"name that there, and leave storage_account and domain out of the URL; or use AZURE_STORAGE_KEY")
	case options.AccountName != "" && !options.IsLocalEmulator && !azureAccount.MatchString(options.AccountName):
		// It is the first part of a host's name, to which the platform's token would go.
		return nil, failure(Denied, nil, "AZURE_STORAGE_ACCOUNT in the Secret with the store's credentials is no name "+
			"of an account: it has 3 to 24 lowercase letters and digits, and nothing else")
	case account != "":
		options.AccountName = account
	case options.AccountName == "":
		return nil, failure(Denied, nil, "the store's account is not known: it is AZURE_STORAGE_ACCOUNT in the "+
			"Secret with its credentials, or storage_account in its URL")
	}
	if domain != "" {
		options.StorageDomain = domain
	}
	if err := azureVariables(account, domain); err != nil {
		return nil, err
	}
	service, err := azureblob.NewServiceURL(options)
	if err != nil {
		return nil, err
	}
	client, err := azureblob.NewDefaultClient(service, azureblob.ContainerName(u.Bucket))
	if err != nil {
		return nil, err
	}
	return azureblob.OpenBucket(ctx, client, nil)
}

var azureAccount = regexp.MustCompile(`^[0-9a-z]{3,24}$`)

// azureVariables says to the packages that read credentials what the URL does: whose key
// AZURE_STORAGE_KEY is (newCredInfoFromEnv in gocloud.dev's azureblob takes none without an
// account), and where the store's cloud gives out tokens (setAuthorityHost in azidentity), unless
// the platform says so.
func azureVariables(account, domain string) error {
	logins := map[string]string{
		"blob.core.usgovcloudapi.net": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,
		"blob.core.chinacloudapi.cn":  cloud.AzureChina.ActiveDirectoryAuthorityHost,
	}
	for name, value := range map[string]string{"AZURE_STORAGE_ACCOUNT": account,
		"AZURE_AUTHORITY_HOST": logins[domain]} {
		if value == "" || os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// openGoogle opens a bucket. Where STORAGE_EMULATOR_HOST leads to an emulator, no credentials
// are needed.
func openGoogle(ctx context.Context, u stores.URL) (*blob.Bucket, error) {
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		return gcsblob.OpenBucket(ctx, gcp.NewAnonymousHTTPClient(gcp.DefaultTransport()), u.Bucket, nil)
	}
	found, err := googleCredentials(ctx, os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"), stores.GivenGoogleKey)
	if err != nil {
		return nil, err
	}
	client, err := gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(found))
	if err != nil {
		return nil, err
	}
	options := &gcsblob.Options{}
	if universe, err := found.GetUniverseDomain(); err == nil && universe != "" {
		options.ClientOptions = append(options.ClientOptions, option.WithUniverseDomain(universe))
	}
	return gcsblob.OpenBucket(ctx, client, u.Bucket, options)
}

// googleScope is what a token may do, as gocloud.dev asks for it.
const googleScope = "https://www.googleapis.com/auth/cloud-platform"

// googleCredentials are those that Google's packages find by themselves, except in the file that a tenant gave: they
// would do what it says, such as read any file of the pod and send it to any address.
func googleCredentials(ctx context.Context, file, given string) (*oauth.Credentials, error) {
	if file != given {
		found, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, failure(Denied, nil, "there are no credentials of Google's that can be read: neither a "+
				"credentials.json of a service account nor the platform's identity")
		}
		return found, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // where the pod mounts it
	if err == nil {
		text, err = serviceAccountKey(text)
	}
	var found *oauth.Credentials
	if err == nil {
		found, err = oauth.CredentialsFromJSONWithType(ctx, text, oauth.ServiceAccount, googleScope)
	}
	if err != nil {
		return nil, failure(Denied, nil, "the Secret with the store's credentials has no key of a service account of "+
			"Google's, of the type service_account and with Google's own token_uri and universe_domain; other types "+
			"are for the platform's identity, by job.serviceAccountName")
	}
	return found, nil
}

// tokenAddresses are where Google gives tokens to service accounts.
var tokenAddresses = []string{"", "https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token"}

// serviceAccountKey is the key of a service account as Google's packages read it, with nothing else that they would
// look at.
func serviceAccountKey(text []byte) ([]byte, error) {
	var key struct {
		Type     string `json:"type"`
		Project  string `json:"project_id"`
		ID       string `json:"private_key_id"`
		Private  string `json:"private_key"`
		Email    string `json:"client_email"`
		Client   string `json:"client_id"`
		Tokens   string `json:"token_uri"`
		Universe string `json:"universe_domain"`
	}
	if err := json.Unmarshal(text, &key); err != nil {
		return nil, err
	}
	ours := key.Universe == "" || key.Universe == "googleapis.com"
	if key.Type != string(oauth.ServiceAccount) || !ours || !slices.Contains(tokenAddresses, key.Tokens) {
		return nil, errors.New("another type, or another address")
	}
	return json.Marshal(key) //nolint:gosec // for Google's package alone
}
