//! The users of the test cluster, and the files with which users and the API server authenticate.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A user of the cluster, with a token and a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// `system:masters`: may do everything.
    Admin,
    /// May get, list and watch everything, including secrets, but write nothing.
    Reader,
    /// The role `edit`, in every namespace.
    Editor,
    /// Authenticated, but without rights until a test binds a role to `nobody`.
    Nobody,
    /// The control plane itself, so that its requests can be told from those of a test.
    ControlPlane,
}

impl User {
    /// All users.
    pub const ALL: [Self; 5] = [
        Self::Admin,
        Self::Reader,
        Self::Editor,
        Self::Nobody,
        Self::ControlPlane,
    ];

    /// Returns the name of the user at the API server.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Reader => "reader",
            Self::Editor => "editor",
            Self::Nobody => "nobody",
            Self::ControlPlane => "control-plane",
        }
    }

    /// Returns the token of the user.
    pub fn token(self) -> String {
        format!("token-of-{}", self.name())
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Admin | Self::ControlPlane => "system:masters",
            _ => "konverge:test",
        }
    }
}

/// Writes a certificate authority, the server's certificate, the key of service accounts, the tokens, and the audit
/// policy.
pub fn write_identities(folder: &Path) {
    let write =
        |name: &str, text: String| std::fs::write(folder.join(name), text).expect("the file can be written");

    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority
        .distinguished_name
        .push(DnType::CommonName, "konverge test authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"));
    let authority = authority.expect("a certificate");
    let server_key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let server = CertificateParams::new(names).and_then(|server| server.signed_by(&server_key, &authority));
    write("ca.crt", authority.pem());
    write("server.crt", server.expect("a certificate").pem());
    write("server.key", server_key.serialize_pem());

    let accounts = KeyPair::generate().expect("a key");
    write("accounts.key", accounts.serialize_pem());
    write("accounts.pub", accounts.public_key_pem());

    let tokens =
        User::ALL.map(|user| format!("{},{1},{1},\"{2}\"\n", user.token(), user.name(), user.groups()));
    write("tokens.csv", tokens.concat());

    write("audit-policy.yaml", super::audit::policy().to_string());
}

/// Returns the path of the kubeconfig of `user`.
pub fn kubeconfig(folder: &Path, user: User) -> PathBuf {
    folder.join(format!("{}.kubeconfig", user.name()))
}

/// Writes the kubeconfig of `user`, with the single context `test`.
pub fn write_kubeconfig(folder: &Path, url: &str, user: User) {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": folder.join("ca.crt")}}],
        "users": [{"name": user.name(), "user": {"token": user.token()}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user.name()}}],
        "current-context": "test",
    });
    std::fs::write(kubeconfig(folder, user), text.to_string()).expect("the kubeconfig can be written");
}
