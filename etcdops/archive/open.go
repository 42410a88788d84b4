package archive

import (
	"context"
	"net/url"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
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
	account, domain := u.Parameter("storage_account"), u.Parameter("domain")
	switch {
	case options.SASToken != "" && (options.AccountName == "" || account != "" && account != options.AccountName ||
		domain != ""):
		// The token is part of each request's URL, so it goes only to the account that it was given
		// with.
		return nil, failure(Denied, nil, "the store's AZURE_STORAGE_SAS_TOKEN is sent only to the account that "+
			"AZURE_STORAGE_ACCOUNT names beside it, at blob.core.windows.net: "+
			"name that there, and leave storage_account and domain out of the URL; or use AZURE_STORAGE_KEY")
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
	found, err := gcp.DefaultCredentials(ctx)
	if err != nil {
		return nil, failure(Denied, nil, "there are no credentials of Google's that can be read: neither a "+
			"credentials.json of a service account nor the platform's identity")
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
