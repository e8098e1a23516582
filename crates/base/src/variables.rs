//! The environment variables that Konverge reads, in one list. No other file contains their names as text, and
//! `docs/reference/environment.md` is generated from it.
#![expect(missing_docs, reason = "`SECTIONS` says what each one is")]

/// A section of the list: variables that belong together.
#[derive(Debug, Clone, Copy)]
pub struct VariableSection {
    /// The heading of the section.
    pub title: &'static str,
    /// The introduction, as Markdown; may be empty.
    pub introduction: &'static str,
    /// The variables, each with its meaning, as Markdown.
    pub variables: &'static [(&'static [&'static str], &'static str)],
    /// The text after the variables, as Markdown; may be empty.
    pub more: &'static str,
}

pub const KONVERGE_REPO: &str = "KONVERGE_REPO";
pub const KONVERGE_LIVE: &str = "KONVERGE_LIVE";
pub const KONVERGE_SHARD: &str = "KONVERGE_SHARD";
pub const KONVERGE_SHARD_RESULT: &str = "KONVERGE_SHARD_RESULT";
pub const KONVERGE_APPROVE: &str = "KONVERGE_APPROVE";
pub const KONVERGE_REASON: &str = "KONVERGE_REASON";
pub const KONVERGE_SUMMARY: &str = "KONVERGE_SUMMARY";
pub const KONVERGE_ENVIRONMENT: &str = "KONVERGE_ENVIRONMENT";
pub const KONVERGE_FOR_ENVIRONMENT: &str = "KONVERGE_FOR_ENVIRONMENT";
pub const KONVERGE_COMMENT: &str = "KONVERGE_COMMENT";
pub const KONVERGE_KUBECONFIG: &str = "KONVERGE_KUBECONFIG";
pub const KONVERGE_REVIEW_KEY: &str = "KONVERGE_REVIEW_KEY";
pub const KONVERGE_AGE_IDENTITY: &str = "KONVERGE_AGE_IDENTITY";
pub const KONVERGE_ON_SCHEDULE: &str = "KONVERGE_ON_SCHEDULE";
pub const KONVERGE_TESTS: &str = "KONVERGE_TESTS";
pub const KONVERGE_PAGE_ARTIFACT: &str = "KONVERGE_PAGE_ARTIFACT";
pub const KONVERGE_PAGE_URL: &str = "KONVERGE_PAGE_URL";
pub const KONVERGE_TRUSTED_ADDRESSES: &str = "KONVERGE_TRUSTED_ADDRESSES";
pub const KONVERGE_KCL: &str = "KONVERGE_KCL";
pub const KONVERGE_OFFLINE: &str = "KONVERGE_OFFLINE";
pub const KONVERGE_KUBERNETES_SCHEMAS: &str = "KONVERGE_KUBERNETES_SCHEMAS";
pub const KONVERGE_CACHE: &str = "KONVERGE_CACHE";
pub const KONVERGE_LOG: &str = "KONVERGE_LOG";
pub const KONVERGE_LOG_FORMAT: &str = "KONVERGE_LOG_FORMAT";
pub const KONVERGE_HTTP_TOKEN: &str = "KONVERGE_HTTP_TOKEN";
pub const KONVERGE_HTTP_USER: &str = "KONVERGE_HTTP_USER";
pub const KONVERGE_HTTP_PASSWORD: &str = "KONVERGE_HTTP_PASSWORD";
pub const KONVERGE_OCI_REGISTRY: &str = "KONVERGE_OCI_REGISTRY";
pub const KONVERGE_OCI_USERNAME: &str = "KONVERGE_OCI_USERNAME";
pub const KONVERGE_OCI_PASSWORD: &str = "KONVERGE_OCI_PASSWORD";
pub const KONVERGE_PORTAL_KEY: &str = "KONVERGE_PORTAL_KEY";
pub const KONVERGE_COMPLETE: &str = "KONVERGE_COMPLETE";
pub const PATH: &str = "PATH";
pub const HOME: &str = "HOME";
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
pub const KUBECONFIG: &str = "KUBECONFIG";
pub const PIP_INDEX_URL: &str = "PIP_INDEX_URL";
pub const KCL_REGISTRY: &str = "KCL_REGISTRY";
pub const DOCKER_CONFIG: &str = "DOCKER_CONFIG";
pub const KUSION_MODULE_PATH: &str = "KUSION_MODULE_PATH";
pub const KUSION_HOME: &str = "KUSION_HOME";
pub const HTTP_PROXY: &str = "HTTP_PROXY";
pub const HTTPS_PROXY: &str = "HTTPS_PROXY";
pub const NO_PROXY: &str = "NO_PROXY";
pub const SSL_CERT_FILE: &str = "SSL_CERT_FILE";
pub const SSL_CERT_DIR: &str = "SSL_CERT_DIR";
pub const GIT_CONFIG_COUNT: &str = "GIT_CONFIG_COUNT";
pub const GIT_INDEX_FILE: &str = "GIT_INDEX_FILE";
pub const NO_COLOR: &str = "NO_COLOR";
pub const TERM: &str = "TERM";
pub const RUST_BACKTRACE: &str = "RUST_BACKTRACE";
pub const OTEL_EXPORTER_OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
pub const OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
pub const OTEL_EXPORTER_OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
pub const OTEL_SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
pub const TRACEPARENT: &str = "TRACEPARENT";
pub const USER: &str = "USER";
pub const LOGNAME: &str = "LOGNAME";
pub const HOSTNAME: &str = "HOSTNAME";
pub const CI: &str = "CI";
pub const GITHUB_ACTIONS: &str = "GITHUB_ACTIONS";
pub const GITEA_ACTIONS: &str = "GITEA_ACTIONS";
pub const FORGEJO_ACTIONS: &str = "FORGEJO_ACTIONS";
pub const GITLAB_CI: &str = "GITLAB_CI";
pub const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
pub const GH_TOKEN: &str = "GH_TOKEN";
pub const KONVERGE_GITHUB_APP_ID: &str = "KONVERGE_GITHUB_APP_ID";
pub const KONVERGE_GITHUB_APP_KEY: &str = "KONVERGE_GITHUB_APP_KEY";
pub const GITHUB_EVENT_NAME: &str = "GITHUB_EVENT_NAME";
pub const GITHUB_EVENT_PATH: &str = "GITHUB_EVENT_PATH";
pub const GITHUB_REF: &str = "GITHUB_REF";
pub const GITHUB_SHA: &str = "GITHUB_SHA";
pub const GITHUB_REPOSITORY: &str = "GITHUB_REPOSITORY";
pub const GITHUB_SERVER_URL: &str = "GITHUB_SERVER_URL";
pub const GITHUB_API_URL: &str = "GITHUB_API_URL";
pub const GITHUB_RUN_ID: &str = "GITHUB_RUN_ID";
pub const GITHUB_RUN_NUMBER: &str = "GITHUB_RUN_NUMBER";
pub const GITHUB_RUN_ATTEMPT: &str = "GITHUB_RUN_ATTEMPT";
pub const GITHUB_WORKFLOW_REF: &str = "GITHUB_WORKFLOW_REF";
pub const GITHUB_ACTOR: &str = "GITHUB_ACTOR";
pub const GITHUB_TRIGGERING_ACTOR: &str = "GITHUB_TRIGGERING_ACTOR";
pub const GITHUB_OUTPUT: &str = "GITHUB_OUTPUT";
pub const GITHUB_STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";
pub const GITHUB_WORKSPACE: &str = "GITHUB_WORKSPACE";
pub const GITHUB_WORKFLOW: &str = "GITHUB_WORKFLOW";
pub const GITEA_TOKEN: &str = "GITEA_TOKEN";
pub const GITLAB_TOKEN: &str = "GITLAB_TOKEN";
pub const KONVERGE_GITLAB_TOKEN: &str = "KONVERGE_GITLAB_TOKEN";
pub const GITLAB_USER_LOGIN: &str = "GITLAB_USER_LOGIN";
pub const CI_API_V4_URL: &str = "CI_API_V4_URL";
pub const CI_SERVER_URL: &str = "CI_SERVER_URL";
pub const CI_PROJECT_PATH: &str = "CI_PROJECT_PATH";
pub const CI_PROJECT_ID: &str = "CI_PROJECT_ID";
pub const CI_PROJECT_DIR: &str = "CI_PROJECT_DIR";
pub const CI_PIPELINE_ID: &str = "CI_PIPELINE_ID";
pub const CI_PIPELINE_SOURCE: &str = "CI_PIPELINE_SOURCE";
pub const CI_JOB_ID: &str = "CI_JOB_ID";
pub const CI_JOB_NAME: &str = "CI_JOB_NAME";
pub const CI_COMMIT_SHA: &str = "CI_COMMIT_SHA";
pub const CI_COMMIT_BEFORE_SHA: &str = "CI_COMMIT_BEFORE_SHA";
pub const CI_COMMIT_BRANCH: &str = "CI_COMMIT_BRANCH";
pub const CI_COMMIT_TAG: &str = "CI_COMMIT_TAG";
pub const CI_DEFAULT_BRANCH: &str = "CI_DEFAULT_BRANCH";
pub const CI_MERGE_REQUEST_IID: &str = "CI_MERGE_REQUEST_IID";
pub const CI_MERGE_REQUEST_EVENT_TYPE: &str = "CI_MERGE_REQUEST_EVENT_TYPE";
pub const CI_MERGE_REQUEST_PROJECT_ID: &str = "CI_MERGE_REQUEST_PROJECT_ID";
pub const CI_MERGE_REQUEST_SOURCE_PROJECT_ID: &str = "CI_MERGE_REQUEST_SOURCE_PROJECT_ID";
pub const CI_MERGE_REQUEST_SOURCE_BRANCH_NAME: &str = "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME";
pub const CI_MERGE_REQUEST_SOURCE_BRANCH_SHA: &str = "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA";
pub const CI_MERGE_REQUEST_TARGET_BRANCH_NAME: &str = "CI_MERGE_REQUEST_TARGET_BRANCH_NAME";
pub const CI_MERGE_REQUEST_TARGET_BRANCH_SHA: &str = "CI_MERGE_REQUEST_TARGET_BRANCH_SHA";
pub const CI_MERGE_REQUEST_DIFF_BASE_SHA: &str = "CI_MERGE_REQUEST_DIFF_BASE_SHA";
pub const RUNNER_TEMP: &str = "RUNNER_TEMP";
pub const RUNNER_DEBUG: &str = "RUNNER_DEBUG";
pub const INPUT_COMMAND: &str = "INPUT_COMMAND";
pub const ACTIONS_ID_TOKEN_REQUEST_URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
pub const ACTIONS_ID_TOKEN_REQUEST_TOKEN: &str = "ACTIONS_ID_TOKEN_REQUEST_TOKEN";
pub const AWS_ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
pub const AWS_SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
pub const AWS_SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
pub const AWS_PROFILE: &str = "AWS_PROFILE";
pub const AWS_CONFIG_FILE: &str = "AWS_CONFIG_FILE";
pub const AWS_SHARED_CREDENTIALS_FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";
pub const AWS_ROLE_ARN: &str = "AWS_ROLE_ARN";
pub const AWS_WEB_IDENTITY_TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
pub const AWS_ROLE_SESSION_NAME: &str = "AWS_ROLE_SESSION_NAME";
pub const AWS_REGION: &str = "AWS_REGION";
pub const AWS_DEFAULT_REGION: &str = "AWS_DEFAULT_REGION";
pub const AWS_ENDPOINT_URL: &str = "AWS_ENDPOINT_URL";
pub const AWS_ENDPOINT_URL_STS: &str = "AWS_ENDPOINT_URL_STS";
pub const AWS_ENDPOINT_URL_KMS: &str = "AWS_ENDPOINT_URL_KMS";
pub const AWS_ENDPOINT_URL_SECRETS_MANAGER: &str = "AWS_ENDPOINT_URL_SECRETS_MANAGER";
pub const AWS_ENDPOINT_URL_SSM: &str = "AWS_ENDPOINT_URL_SSM";
pub const AWS_CONTAINER_CREDENTIALS_RELATIVE_URI: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
pub const AWS_CONTAINER_CREDENTIALS_FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
pub const AWS_CONTAINER_AUTHORIZATION_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
pub const AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
pub const GOOGLE_APPLICATION_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
pub const GOOGLE_CREDENTIALS: &str = "GOOGLE_CREDENTIALS";
pub const GOOGLE_SERVICE_ACCOUNT_KEY: &str = "GOOGLE_SERVICE_ACCOUNT_KEY";
pub const GOOGLE_WORKLOAD_IDENTITY_PROVIDER: &str = "GOOGLE_WORKLOAD_IDENTITY_PROVIDER";
pub const GOOGLE_SERVICE_ACCOUNT_EMAIL: &str = "GOOGLE_SERVICE_ACCOUNT_EMAIL";
pub const GCE_METADATA_HOST: &str = "GCE_METADATA_HOST";
pub const CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS";
pub const AZURE_CLIENT_ID: &str = "AZURE_CLIENT_ID";
pub const AZURE_TENANT_ID: &str = "AZURE_TENANT_ID";
pub const AZURE_CLIENT_SECRET: &str = "AZURE_CLIENT_SECRET";
pub const AZURE_FEDERATED_TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
pub const AZURE_AUTHORITY_HOST: &str = "AZURE_AUTHORITY_HOST";
pub const AZURE_STORAGE_ACCOUNT_NAME: &str = "AZURE_STORAGE_ACCOUNT_NAME";
pub const ALIBABA_CLOUD_ACCESS_KEY_ID: &str = "ALIBABA_CLOUD_ACCESS_KEY_ID";
pub const ALIBABA_CLOUD_ACCESS_KEY_SECRET: &str = "ALIBABA_CLOUD_ACCESS_KEY_SECRET";
pub const ALIBABA_CLOUD_SECURITY_TOKEN: &str = "ALIBABA_CLOUD_SECURITY_TOKEN";
pub const ALIBABA_CLOUD_ROLE_ARN: &str = "ALIBABA_CLOUD_ROLE_ARN";
pub const ALIBABA_CLOUD_OIDC_PROVIDER_ARN: &str = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN";
pub const ALIBABA_CLOUD_OIDC_TOKEN_FILE: &str = "ALIBABA_CLOUD_OIDC_TOKEN_FILE";
pub const ALIBABA_CLOUD_REGION: &str = "ALIBABA_CLOUD_REGION";
pub const ALIBABA_CLOUD_STS_ENDPOINT: &str = "ALIBABA_CLOUD_STS_ENDPOINT";
pub const ALIBABA_CLOUD_KMS_ENDPOINT: &str = "ALIBABA_CLOUD_KMS_ENDPOINT";
pub const OSS_ACCESS_KEY_ID: &str = "OSS_ACCESS_KEY_ID";
pub const OSS_ACCESS_KEY_SECRET: &str = "OSS_ACCESS_KEY_SECRET";
pub const OSS_SESSION_TOKEN: &str = "OSS_SESSION_TOKEN";
pub const OSS_REGION: &str = "OSS_REGION";
pub const VAULT_TOKEN: &str = "VAULT_TOKEN";
pub const VAULT_ROLE_ID: &str = "VAULT_ROLE_ID";
pub const VAULT_SECRET_ID: &str = "VAULT_SECRET_ID";
pub const SOPS_AGE_KEY: &str = "SOPS_AGE_KEY";
pub const PGUSER: &str = "PGUSER";
pub const PGPASSWORD: &str = "PGPASSWORD";
pub const MYSQL_PWD: &str = "MYSQL_PWD";
pub const VAULT_ADDR: &str = "VAULT_ADDR";
pub const VAULT_NAMESPACE: &str = "VAULT_NAMESPACE";

/// All sections.
pub const SECTIONS: [VariableSection; 4] = [
    VariableSection {
        title: "Konverge's own",
        introduction: "[The action](action.md) sets the variables that have one of its inputs in brackets; elsewhere you set them, with the same meaning.",
        variables: &[
            (
                &[KONVERGE_REPO],
                "the folder of the checkout, as `--repo` (`working-directory`)",
            ),
            (&[KONVERGE_LIVE], "as `--live` (`live`)"),
            (
                &[KONVERGE_SHARD, KONVERGE_SHARD_RESULT],
                "same as `--shard` and `--shard-result` (`shard`, `shard-result`)",
            ),
            (&[KONVERGE_APPROVE], "as `--approve` (`approve`)"),
            (
                &[KONVERGE_REASON],
                "at GitLab: the reason of the person who starts a pipeline with digests",
            ),
            (
                &[KONVERGE_SUMMARY],
                "at GitLab: the file that takes the place of a summary of the job",
            ),
            (
                &[KONVERGE_ENVIRONMENT, KONVERGE_FOR_ENVIRONMENT],
                "same as `--environment` and `--for-environment` (`environment`, `for-environment`)",
            ),
            (&[KONVERGE_COMMENT], "as `--comment` (`comment`)"),
            (&[KONVERGE_KUBECONFIG], "the text of a kubeconfig (`kubeconfig`)"),
            (
                &[KONVERGE_REVIEW_KEY],
                "the key that signs reviews (`review-key`)",
            ),
            (
                &[KONVERGE_AGE_IDENTITY],
                "the private key of `state.encrypt_to`; it also decrypts the shared cache (`age-identity`)",
            ),
            (
                &[KONVERGE_ON_SCHEDULE],
                "set by the workflow: `apply`: on a schedule the job applies what is pending, and moves rollouts on. Default: `drift`, it checks for drift",
            ),
            (
                &[KONVERGE_TESTS],
                "set by the workflow: `true`: `konverge ci` runs stack tests instead, as `konverge ci --tests`",
            ),
            (
                &[KONVERGE_PAGE_ARTIFACT],
                "set by the workflow: the name of the artifact to which a later step uploads the page",
            ),
            (
                &[KONVERGE_PAGE_URL],
                "set by the workflow: the address of that artifact: `konverge ci` then only links it",
            ),
            (
                &[KONVERGE_TRUSTED_ADDRESSES],
                "addresses, separated by commas, at which commands by hand may log in although only the checkout has them",
            ),
            (
                &[KONVERGE_KCL],
                "set by you or the image: the Python interpreter, outside the checkout, that has the KCL core. Default: the core that `konverge kcl install` installed",
            ),
            (
                &[KONVERGE_OFFLINE],
                "any value: no package and no core is fetched",
            ),
            (
                &[KONVERGE_KUBERNETES_SCHEMAS],
                "a mirror of `raw.githubusercontent.com/kubernetes/kubernetes`, for `konverge models import kubernetes@VERSION`",
            ),
            (&[KONVERGE_CACHE], "`off`: the compile cache is not used"),
            (
                &[KONVERGE_LOG],
                "the filter of the log on stderr, such as `konverge=debug`; `debug` alone is for every crate, and some print headers",
            ),
            (&[KONVERGE_LOG_FORMAT], "`json`: same as `--log-format json`"),
            (
                &[KONVERGE_HTTP_TOKEN],
                "the bearer token of a state at `https://…`",
            ),
            (
                &[KONVERGE_HTTP_USER, KONVERGE_HTTP_PASSWORD],
                "the login of a state at `https://…`",
            ),
            (
                &[KONVERGE_OCI_REGISTRY],
                "the registry for the user and the password below",
            ),
            (
                &[KONVERGE_OCI_USERNAME, KONVERGE_OCI_PASSWORD],
                "the user and the password for that registry",
            ),
            (
                &[KONVERGE_PORTAL_KEY],
                "the key of the cookies of `konverge serve`, at least 32 characters, the same for every replica. Default: a random key of the process",
            ),
            (
                &[KONVERGE_COMPLETE],
                "set by the shell's completion script: asks for completions",
            ),
        ],
        more: "",
    },
    VariableSection {
        title: "Set on this machine",
        introduction: "",
        variables: &[
            (
                &[PATH],
                "where `git`, `terraform`, `tofu`, `python3` and credentials plugins are found. Folders of the checkout are left out",
            ),
            (
                &[HOME, XDG_CACHE_HOME, XDG_DATA_HOME, XDG_STATE_HOME],
                "where caches, KCL cores and the local hash key lie",
            ),
            (
                &[KUBECONFIG],
                "the kubeconfig, unless `kubeconfig_env` names another variable",
            ),
            (&[PIP_INDEX_URL], "the package index of `konverge kcl install`"),
            (
                &[KCL_REGISTRY],
                "the registry of packages that name no registry. Default: `ghcr.io`",
            ),
            (
                &[DOCKER_CONFIG],
                "the folder of `config.json` with the logins of registries",
            ),
            (
                &[KUSION_MODULE_PATH, KUSION_HOME],
                "where the binaries of Kusion modules lie",
            ),
            (
                &[HTTP_PROXY, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR],
                "proxies and trusted certificates",
            ),
            (
                &[GIT_CONFIG_COUNT],
                "the number of settings for git in the environment; they are passed on to git",
            ),
            (
                &[GIT_INDEX_FILE],
                "set by git, in its hooks: the index that `konverge check --staged` reads",
            ),
            (&[NO_COLOR, TERM], "no color on a terminal"),
            (&[RUST_BACKTRACE], "a crash prints its stack"),
            (
                &[OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT],
                "the OpenTelemetry collector that gets [what a run did](../guides/watch.md#what-took-how-long), by HTTP",
            ),
            (&[OTEL_EXPORTER_OTLP_HEADERS], "its login"),
            (&[OTEL_SDK_DISABLED], "`true`: nothing is sent to the collector"),
            (
                &[TRACEPARENT],
                "the trace that the run is a part of, as W3C writes it",
            ),
            (
                &[USER, LOGNAME, HOSTNAME],
                "the user and the machine, as the lease and the state record them. `USER` is also the default login of MySQL",
            ),
            (&[CI], "set: `konverge build --show-secrets` is refused"),
        ],
        more: "",
    },
    VariableSection {
        title: "Set by the forge's runner",
        introduction: "The runner sets them. `GITHUB_TOKEN` and `GH_TOKEN` also help on your machine, for `konverge doctor` and clones that lack a commit.",
        variables: &[
            (
                &[GITHUB_ACTIONS, GITEA_ACTIONS, GITLAB_CI],
                "says whose job this is: GitHub's or that of [another forge](forges.md)",
            ),
            (
                &[FORGEJO_ACTIONS, GITHUB_RUN_NUMBER],
                "says that the runner is Forgejo's, and the number in [the URL of its run](forges.md#forgejo)",
            ),
            (
                &[GITHUB_TOKEN, GH_TOKEN],
                "the token; in the action it is the input `github-token`",
            ),
            (
                &[GITEA_TOKEN],
                "set by you: the token of [a bot at Gitea](../guides/gitea.md#the-token), which comes before that of the job",
            ),
            (
                &[KONVERGE_GITLAB_TOKEN, GITLAB_TOKEN],
                "set by you: the tokens of [bots at GitLab](../guides/gitlab.md#the-tokens): that of protected branches, which comes first, and that of merge requests; the token of the job is not used",
            ),
            (
                &[KONVERGE_GITHUB_APP_ID, KONVERGE_GITHUB_APP_KEY],
                "set by you: the number and the private key of [a GitHub App](../guides/platform-teams.md#as-an-app), which logs in instead of the token",
            ),
            (
                &[GITHUB_EVENT_NAME, GITHUB_EVENT_PATH, GITHUB_REF, GITHUB_SHA],
                "the event",
            ),
            (
                &[GITHUB_REPOSITORY, GITHUB_SERVER_URL, GITHUB_API_URL],
                "the repository, and the URLs of its GitHub",
            ),
            (
                &[
                    GITHUB_RUN_ID,
                    GITHUB_RUN_ATTEMPT,
                    GITHUB_WORKFLOW_REF,
                    GITHUB_WORKFLOW,
                    GITHUB_ACTOR,
                    GITHUB_TRIGGERING_ACTOR,
                ],
                "the run and who started it",
            ),
            (
                &[
                    CI_API_V4_URL,
                    CI_SERVER_URL,
                    CI_PROJECT_PATH,
                    CI_PROJECT_ID,
                    CI_PROJECT_DIR,
                    CI_DEFAULT_BRANCH,
                ],
                "the project, and the URLs of its GitLab",
            ),
            (
                &[
                    CI_PIPELINE_ID,
                    CI_PIPELINE_SOURCE,
                    CI_JOB_ID,
                    CI_JOB_NAME,
                    CI_COMMIT_SHA,
                    CI_COMMIT_BEFORE_SHA,
                    CI_COMMIT_BRANCH,
                    CI_COMMIT_TAG,
                    GITLAB_USER_LOGIN,
                ],
                "the pipeline at GitLab, its event and who started it",
            ),
            (
                &[
                    CI_MERGE_REQUEST_IID,
                    CI_MERGE_REQUEST_EVENT_TYPE,
                    CI_MERGE_REQUEST_PROJECT_ID,
                    CI_MERGE_REQUEST_SOURCE_PROJECT_ID,
                    CI_MERGE_REQUEST_SOURCE_BRANCH_NAME,
                    CI_MERGE_REQUEST_SOURCE_BRANCH_SHA,
                    CI_MERGE_REQUEST_TARGET_BRANCH_NAME,
                    CI_MERGE_REQUEST_TARGET_BRANCH_SHA,
                    CI_MERGE_REQUEST_DIFF_BASE_SHA,
                ],
                "the merge request at GitLab",
            ),
            (
                &[GITHUB_OUTPUT, GITHUB_STEP_SUMMARY, GITHUB_WORKSPACE, RUNNER_TEMP],
                "where results are written",
            ),
            (
                &[RUNNER_DEBUG],
                "`1`: somebody started the job again with debug logging: same as `-vv`",
            ),
            (
                &[INPUT_COMMAND],
                "the inputs of the action, one variable for each",
            ),
            (
                &[ACTIONS_ID_TOKEN_REQUEST_URL, ACTIONS_ID_TOKEN_REQUEST_TOKEN],
                "the OIDC token, with `id-token: write`",
            ),
        ],
        more: "",
    },
    VariableSection {
        title: "Credentials",
        introduction: "States, secret stores and key services log in as the usual tools do. [Log in by OIDC](../guides/oidc.md) avoids stored keys.",
        variables: &[
            (
                &[AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN],
                "a key of AWS",
            ),
            (
                &[AWS_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE],
                "the profile, and the files that have it",
            ),
            (
                &[AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_SESSION_NAME],
                "a role of AWS, by OIDC",
            ),
            (&[AWS_REGION, AWS_DEFAULT_REGION], "the region"),
            (
                &[
                    AWS_ENDPOINT_URL,
                    AWS_ENDPOINT_URL_STS,
                    AWS_ENDPOINT_URL_KMS,
                    AWS_ENDPOINT_URL_SECRETS_MANAGER,
                    AWS_ENDPOINT_URL_SSM,
                ],
                "other addresses of the services: S3, logins, keys, secrets",
            ),
            (
                &[
                    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI,
                    AWS_CONTAINER_CREDENTIALS_FULL_URI,
                    AWS_CONTAINER_AUTHORIZATION_TOKEN,
                    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE,
                ],
                "the login in containers of AWS",
            ),
            (
                &[
                    GOOGLE_APPLICATION_CREDENTIALS,
                    GOOGLE_CREDENTIALS,
                    GOOGLE_SERVICE_ACCOUNT_KEY,
                ],
                "a file of Google Cloud, or its text",
            ),
            (
                &[GOOGLE_WORKLOAD_IDENTITY_PROVIDER, GOOGLE_SERVICE_ACCOUNT_EMAIL],
                "Google Cloud by OIDC",
            ),
            (
                &[GCE_METADATA_HOST, CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS],
                "other addresses of Google Cloud",
            ),
            (
                &[
                    AZURE_CLIENT_ID,
                    AZURE_TENANT_ID,
                    AZURE_CLIENT_SECRET,
                    AZURE_FEDERATED_TOKEN_FILE,
                ],
                "an application of Azure, with its secret or by OIDC",
            ),
            (&[AZURE_AUTHORITY_HOST], "the address of Azure's login"),
            (&[AZURE_STORAGE_ACCOUNT_NAME], "the account of a state on Azure"),
            (
                &[
                    ALIBABA_CLOUD_ACCESS_KEY_ID,
                    ALIBABA_CLOUD_ACCESS_KEY_SECRET,
                    ALIBABA_CLOUD_SECURITY_TOKEN,
                ],
                "a key of Alibaba Cloud",
            ),
            (
                &[
                    ALIBABA_CLOUD_ROLE_ARN,
                    ALIBABA_CLOUD_OIDC_PROVIDER_ARN,
                    ALIBABA_CLOUD_OIDC_TOKEN_FILE,
                ],
                "a role of Alibaba Cloud, by OIDC",
            ),
            (
                &[
                    ALIBABA_CLOUD_REGION,
                    ALIBABA_CLOUD_STS_ENDPOINT,
                    ALIBABA_CLOUD_KMS_ENDPOINT,
                ],
                "where it is",
            ),
            (
                &[
                    OSS_ACCESS_KEY_ID,
                    OSS_ACCESS_KEY_SECRET,
                    OSS_SESSION_TOKEN,
                    OSS_REGION,
                ],
                "a key of Alibaba Cloud for OSS alone",
            ),
            (&[VAULT_TOKEN], "a token of Vault or OpenBao"),
            (
                &[VAULT_ROLE_ID, VAULT_SECRET_ID],
                "an AppRole of Vault or OpenBao",
            ),
            (&[SOPS_AGE_KEY], "the private key of SOPS files"),
            (&[PGUSER, PGPASSWORD], "the login of PostgreSQL"),
            (&[MYSQL_PWD], "the password of MySQL"),
            (
                &[VAULT_ADDR, VAULT_NAMESPACE],
                "passed on to Terraform's providers",
            ),
        ],
        more: "`konverge.yaml` names three more kinds itself: `clusters.*.kubeconfig_env`, and `url_env` and `key_env` of `notify`. A secret store of kind `env` reads what its rules allow.\n\nTerraform's providers also get `TF_TOKEN_*`, the network's variables, and the variables of their clouds by prefix (`AWS_*`, `GOOGLE_*`, `ARM_*`, `AZURE_*`, `ALICLOUD_*` and others). Every variable whose name contains a word such as `token` or `password` is masked in all output.",
    },
];
