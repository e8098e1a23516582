//! Secrets: which values are secret, and how they are masked in everything that leaves the process.
//!
//! There is one [`Secrets`] registry per run. *Learned* values (a token, a resolved reference, the data of a
//! Kubernetes Secret) are masked wherever they occur in text. *Places* that are secret by shape, schema or
//! name are replaced by a keyed short hash, so that a reviewer sees only whether they changed.
//!
//! [`redact`] masks whole plans and reports, once and before they are rendered.
//!
//! A [`SecretReference`] names a secret of a store. A [`SecretResolver`] fetches its value, a [`SecretValue`], just
//! before the value is written.

mod address_credentials;
mod encodings;
mod escapes;
mod kubernetes_texts;
mod masked_text;
mod masking;
mod name_fields;
mod plain_places;
mod propagated_secrets;
pub mod redact;
mod reference;
mod reference_mark;
mod registry;
mod resolver;
mod secret_names;
mod secret_paths;
mod secret_places;
mod secret_variables;
mod template_value;
mod token_patterns;
mod value;
mod written_reference;

pub use address_credentials::{
    AddressCredential, AddressParts, AddressQuery, credential_in, is_this_machine, without_credentials,
};
pub use kubernetes_texts::{
    TextPlace, decode_base64, encode_base64, may_refer, rewrite_texts, zeroize_texts,
};
pub use masked_text::{shows_mask, without, without_texts, without_words};
pub use masking::{
    hidden_texts, mask_object, mask_object_at, mask_provider, mask_resource, mask_secret_data,
    mask_secret_data_at, mask_terraform,
};
pub use name_fields::is_name_field;
pub use plain_places::why_never_secret;
pub use propagated_secrets::PropagatedSecrets;
pub use reference::{
    GENERATED, MalformedReference, SecretReference, SecretTemplate, StoreName, TemplatePart,
};
pub use reference_mark::reference_mark;
pub use registry::{HashKey, Secrets};
pub use resolver::{RotatedVersion, SecretResolver, StackReferences};
pub use secret_names::is_secret_name;
pub use secret_paths::{is_last_applied, named_texts, secret_texts};
pub use secret_places::{SecretPlaces, value_at};
pub use secret_variables::{is_of_run, is_passed, is_provider_credential, learn_environment};
pub use template_value::TemplatePlace;
pub use token_patterns::without_secrets;
pub use value::SecretValue;
pub use written_reference::{WrittenReference, WrittenReferences};
