//! Files of SOPS whose data key a service of Google or Azure wrapped. The file is one that SOPS itself encrypted; its
//! data key is wrapped again by the fake of the service, in the entries that SOPS writes.

use std::io::Read as _;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use super::sops::{CANARY, Encrypted, fixture};
use crate::support::key_clouds::{AZURE_KEY, GOOGLE_KEY, KeyClouds};

/// The data key of a fixture.
fn data_key(file: &Value) -> Vec<u8> {
    let identity: age::x25519::Identity = fixture("identity.txt").lines().last().unwrap().parse().unwrap();
    let armoured = file["sops"]["age"][0]["enc"].as_str().unwrap();
    let lines = armoured.lines().filter(|line| !line.starts_with("-----"));
    let sealed = STANDARD.decode(lines.collect::<String>()).unwrap();
    let identities = [&identity as &dyn age::Identity].into_iter();
    let decryptor = age::Decryptor::new_buffered(sealed.as_slice()).unwrap();
    let mut key = Vec::new();
    decryptor
        .decrypt(identities)
        .unwrap()
        .read_to_end(&mut key)
        .unwrap();
    key
}

async fn post(clouds: &KeyClouds, path: String, body: Value) -> Value {
    let variables = clouds.job();
    let metadata = variables.iter().find(|(name, _)| *name == "GCE_METADATA_HOST");
    let metadata = &metadata.unwrap().1;
    let login = format!("http://{metadata}/computeMetadata/v1/instance/service-accounts/default/token");
    let client = reqwest::Client::new();
    let token: Value = client.get(login).send().await.unwrap().json().await.unwrap();
    let answer = client
        .post(format!("{}/{path}", clouds.address()))
        .bearer_auth(token["access_token"].as_str().unwrap())
        .json(&body)
        .send()
        .await;
    let answer = answer.unwrap().error_for_status().unwrap();
    answer.json().await.unwrap()
}

/// An apply decrypts with the key that the default branch names, and with no other, whatever the file says; a preview
/// asks no service.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_google_or_azure_opens_a_file() {
    let clouds = KeyClouds::start().await;
    let mut file: Value = konverge_base::yaml::from_str(&fixture("db-1.yaml")).unwrap();
    let key = data_key(&file);
    let version = format!("{:032x}", 1);
    let google = post(
        &clouds,
        format!("v1/{GOOGLE_KEY}:encrypt"),
        json!({"plaintext": STANDARD.encode(&key)}),
    );
    let google = google.await["ciphertext"].take();
    let azure = post(
        &clouds,
        format!("keys/{AZURE_KEY}/{version}/wrapkey?api-version=7.4"),
        json!({"alg": "RSA-OAEP-256", "value": URL_SAFE_NO_PAD.encode(&key)}),
    );
    let azure = azure.await["value"].take();
    let when = "2026-11-23T03:51:47Z";
    let cases = [
        (
            "sops-google",
            format!("gcpkms:{GOOGLE_KEY}"),
            "gcp_kms",
            json!([{"resource_id": GOOGLE_KEY, "created_at": when, "enc": google}]),
        ),
        (
            "sops-azure",
            format!("azurekv:{}/keys/{AZURE_KEY}", clouds.address()),
            "azure_kv",
            json!([{"vault_url": clouds.address(), "name": AZURE_KEY, "version": version, "created_at": when, "enc": azure}]),
        ),
    ];
    for (subject, own, entry, recipients) in cases {
        let metadata = file["sops"].as_object_mut().unwrap();
        for other in ["age", "gcp_kms", "azure_kv"] {
            metadata.remove(other);
        }
        metadata.insert(entry.to_owned(), recipients);
        // JSON is YAML.
        let text = file.to_string();
        let apply = |encrypted: &Encrypted| {
            let variables = clouds.job().into_iter();
            let run = encrypted.apply();
            variables
                .fold(run, |run, (name, value)| run.env(name, value))
                .run()
        };
        let foreign = Encrypted::new(&format!("{subject}-other"), "", "").await;
        foreign.commit(&text);
        clouds.requests();
        let refused = apply(&foreign).expect(1);
        assert!(refused.stdout.contains("its recipients: "), "{}", refused.stdout);
        assert_eq!(clouds.requests(), [] as [String; 0], "{subject}: nobody is asked");

        let encrypted = Encrypted::new(subject, &format!("keys: ['{own}']"), "").await;
        encrypted.commit(&text);
        encrypted.holds_no_value(&encrypted.preview().expect(0));
        assert_eq!(
            clouds.requests(),
            [] as [String; 0],
            "{subject}: a preview needs no key"
        );
        encrypted.holds_no_value(&apply(&encrypted).expect(0));
        assert_eq!(
            encrypted.password().await,
            Some(format!("{CANARY}-1")),
            "{subject}"
        );
        assert_eq!(clouds.requests().len(), 1, "{subject}");
    }
}
