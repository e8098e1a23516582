//! Logs in at clouds without their command-line tools: short-lived credentials from the identity of the job,
//! or from the usual environment variables. Stores, clusters and secret stores use them.

mod acs3;
mod addresses;
mod alibaba;
mod aws;
mod azure;
mod credentials_file;
mod eks;
mod environment;
mod error;
mod google;
mod http_client;
mod job_proof;
mod job_token;
mod registry_login;
pub mod secret_stores;
mod shared_credentials;
mod sigv4;
mod stack_identity;
mod token;

pub use acs3::SignedAlibabaCall;
pub use alibaba::AlibabaLogin;
pub use aws::{AwsLogin, aws_host};
pub use azure::AzureLogin;
pub use eks::EksLogin;
pub use environment::CloudEnvironment;
pub use error::CloudError;
pub use google::GoogleLogin;
pub use job_proof::{JobProof, bound_audience, verify_job};
pub use job_token::JobIdentity;
pub use registry_login::{RegistryLogin, is_local_registry};
pub use sigv4::{RESERVED, SignedJsonPost, canonical_headers, hmac_sha256, percent_encode, sha256};
pub use stack_identity::{StackIdentity, job_subject};
pub use token::{AccessKeys, AccessToken};
