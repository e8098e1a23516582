//! Checks where the values of secret references flow. Only a Secret may read such a value: a plain object would get the
//! value of a new Secret in clear text, and no reviewer would see it.

use std::convert::Infallible;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        FieldPath, ResourceId,
        reference::{MARK, Reference, Targets},
        spec::{Resource, RuntimeKind},
    },
};
use konverge_secrets::{SecretTemplate, may_refer, rewrite_texts};

/// The path of a value in a resource.
#[derive(Debug, PartialEq, Eq)]
struct ValuePath {
    resource: ResourceId,
    /// The keys of the path. `stringData` counts as `data`, because the server writes it so.
    path: Vec<String>,
}

/// A text that reads a value of another resource.
struct Reader {
    value: ValuePath,
    shown: FieldPath,
    is_secret: bool,
    reads: Vec<Reference>,
}

/// Returns an error if a value outside of a Secret reads the value of a secret reference, directly or through other
/// resources.
///
/// # Errors
/// The first such value.
pub(super) fn check(resources: &[Resource], targets: &Targets) -> Result<(), UserError> {
    let mut secret = Vec::new();
    for resource in resources
        .iter()
        .filter(|resource| may_refer(&resource.attributes))
    {
        each_text(resource, |path, _, text| {
            let template = SecretTemplate::parse(text).ok().flatten();
            if template.is_some_and(|template| !template.is_plain()) {
                secret.push(ValuePath::new(resource, path));
            }
        });
    }
    if secret.is_empty() {
        return Ok(());
    }
    let mut readers = Vec::new();
    for resource in resources {
        each_text(resource, |path, is_secret, text| {
            if let Some(reads) = text.contains(MARK).then(|| targets.scan(text).ok()).flatten() {
                readers.push(Reader {
                    value: ValuePath::new(resource, path),
                    shown: path.clone(),
                    is_secret,
                    reads,
                });
            }
        });
    }
    loop {
        // A value that reads a secret becomes a secret itself, so the search is repeated until nothing new is found.
        let (tainted, rest): (Vec<_>, Vec<_>) = readers.into_iter().partition(|reader| {
            let mut reads = reader.reads.iter();
            reads.any(|read| secret.iter().any(|value| value.is_read_by(read)))
        });
        if let Some(plain) = tainted.iter().find(|reader| !reader.is_secret) {
            return Err(refusal(plain));
        }
        if tainted.is_empty() {
            return Ok(());
        }
        secret.extend(tainted.into_iter().map(|reader| reader.value));
        readers = rest;
    }
}

fn refusal(reader: &Reader) -> UserError {
    let message = format!(
        "`{}` copies the value of a secret reference into `{}`, where everybody who can read the object can see it",
        reader.value.resource, reader.shown
    );
    UserError::new(ErrorKind::Secret, message)
        .hint("write the reference itself into `stringData` of a Secret, and name that Secret where the value is needed")
}

impl ValuePath {
    fn new(resource: &Resource, path: &FieldPath) -> Self {
        Self {
            resource: resource.id.clone(),
            path: path.components().map(as_written_by_server).collect(),
        }
    }

    /// Returns true if a reference reads this value, a part of it, or a value that contains it.
    fn is_read_by(&self, read: &Reference) -> bool {
        let mut keys = read
            .path
            .iter()
            .cloned()
            .map(as_written_by_server)
            .zip(&self.path);
        self.resource == read.target && keys.all(|(read, own)| read == *own)
    }
}

fn as_written_by_server(key: String) -> String {
    match key.as_str() {
        "stringData" => "data".to_owned(),
        _ => key,
    }
}

/// Calls `visit` for each text of a resource with its path, true if the text may be a secret, and the text.
pub(super) fn each_text(resource: &Resource, mut visit: impl FnMut(&FieldPath, bool, &str)) {
    let is_object = resource.runtime == RuntimeKind::Kubernetes;
    let visited = rewrite_texts(&mut resource.attributes.clone(), &mut |place, text| {
        visit(place.path, place.is_secret && is_object, text);
        Ok::<_, Infallible>(None)
    });
    visited.unwrap_or_else(|never| match never {});
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn resource(id: &str, attributes: Value) -> Resource {
        Resource::new(
            id.parse().unwrap(),
            match attributes.get("kind") {
                Some(_) => RuntimeKind::Kubernetes,
                None => RuntimeKind::Terraform,
            },
            attributes.as_object().unwrap().clone(),
        )
    }

    fn judge(others: &[(&str, Value)]) -> Result<(), String> {
        let pay = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"password": "ref+job://PAY", "plain": "x"}});
        let mut resources = vec![resource("v1:Secret:ns:pay", pay)];
        resources.extend(others.iter().map(|(id, object)| resource(id, object.clone())));
        let targets: Targets = resources.iter().map(|resource| &resource.id).collect();
        check(&resources, &targets).map_err(|error| error.message)
    }

    fn config_map(text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"p": text}})
    }

    fn secret(text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"p": text}})
    }

    #[test]
    fn the_value_of_a_reference_flows_into_secrets_alone() {
        const A: &str = "v1:ConfigMap:ns:a";
        const B: &str = "v1:Secret:ns:b";
        const READ: &str = "$kusion_path.v1:Secret:ns:pay.data.password";
        for text in [
            READ,
            "u:$kusion_path.v1:Secret:ns:pay.data.password@h",
            "$kusion_path.v1:Secret:ns:pay.stringData.password",
            "$kusion_path.v1:Secret:ns:pay.data",
            "$kusion_path.v1:Secret:ns:pay[\"data\"][\"password\"]",
        ] {
            let refusal = judge(&[(A, config_map(text))]).unwrap_err();
            assert!(refusal.contains("into `/data/p`"), "{text}: {refusal}");
        }
        let by_way = [
            (A, config_map("$kusion_path.v1:Secret:ns:b.data.p")),
            (B, secret(READ)),
        ];
        assert!(judge(&by_way).is_err());
        assert!(judge(&[("hashicorp:local:local_file:f", json!({"content": READ}))]).is_err());
        for allowed in [
            [(B, secret(READ))].as_slice(),
            &[(A, config_map("$kusion_path.v1:Secret:ns:pay.metadata.name"))],
            &[(A, config_map("$kusion_path.v1:Secret:ns:pay.data.plain"))],
        ] {
            assert_eq!(judge(allowed), Ok(()));
        }
    }
}
