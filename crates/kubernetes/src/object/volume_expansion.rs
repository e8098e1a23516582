//! Expands the volumes of a StatefulSet. Its claim templates are immutable, and new templates have no effect
//! on existing claims. So the claims are patched, and the set is deleted and recreated without its pods,
//! which keep running.

use http::Method;
use serde_json::{Value, json};

use super::super::{
    FIELD_MANAGER,
    api::{
        client::{ApiRequest, escape},
        cluster::Cluster,
        error::ApiError,
    },
};
use konverge_base::model::{diff, quantity::Quantity};

/// The new sizes of a set's claims.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expansion {
    namespace: String,
    set: String,
    /// The name of each template, and its desired storage.
    templates: Vec<(String, String)>,
}

const STORAGE: &str = "/spec/resources/requests/storage";

impl Expansion {
    /// Returns the expansion from the live to the expected set, if nothing else in its templates changes.
    pub(crate) fn between(live: &Value, becomes: &Value) -> Option<Self> {
        let name = |key: &str| live["metadata"][key].as_str().map(str::to_owned);
        let templates = |set: &Value| set["spec"]["volumeClaimTemplates"].as_array().cloned();
        let (before, after) = (templates(live)?, templates(becomes)?);
        if before.len() != after.len() {
            return None;
        }
        let mut grown = Vec::new();
        for (old, new) in before.iter().zip(&after) {
            let mut as_before = new.clone();
            let (from, to) = (old.pointer(STORAGE)?, new.pointer(STORAGE)?);
            if !diff::same(from, to) {
                if size(to)? <= size(from)? {
                    return None;
                }
                *as_before.pointer_mut(STORAGE)? = from.clone();
                grown.push((old["metadata"]["name"].as_str()?.to_owned(), text(to)));
            }
            if !diff::same(old, &as_before) {
                return None;
            }
        }
        (!grown.is_empty()).then_some(Self {
            namespace: name("namespace")?,
            set: name("name")?,
            templates: grown,
        })
    }

    /// Patches each claim to the desired storage. With `dry`, only checks that the server would accept the
    /// patches. Returns the names of the claims that grow and their new sizes.
    ///
    /// # Errors
    /// The claims may not be read, or one may not grow: its storage class does not allow it, or a quota is
    /// exhausted.
    pub(crate) async fn carry_out(&self, cluster: &Cluster, dry: bool) -> Result<Vec<String>, ApiError> {
        let path = format!(
            "/api/v1/namespaces/{}/persistentvolumeclaims",
            escape(&self.namespace)
        );
        let claims = cluster.api.call(&ApiRequest::get(path.as_str())).await?.value;
        let mut grown = Vec::new();
        for claim in claims["items"].as_array().into_iter().flatten() {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            let Some(storage) = self.wanted_of(name) else {
                continue;
            };
            let wanted = json!(storage);
            let now = claim.pointer(STORAGE).and_then(size);
            if now.zip(size(&wanted)).is_none_or(|(now, wanted)| now >= wanted) {
                continue;
            }
            let patch = json!({
                "metadata": {"uid": claim["metadata"]["uid"]},
                "spec": {"resources": {"requests": {"storage": wanted}}}
            });
            let mut request = ApiRequest::get(format!("{path}/{}", escape(name)))
                .query("fieldManager", FIELD_MANAGER)
                .body("application/merge-patch+json", &patch);
            request.method = Method::PATCH;
            if dry {
                request = request.query("dryRun", "All");
            }
            cluster.api.call(&request).await?;
            grown.push(format!("`{name}` to {storage}"));
        }
        Ok(grown)
    }

    /// Returns the desired storage of a claim, whose name is TEMPLATE-SET-ORDINAL.
    fn wanted_of(&self, claim: &str) -> Option<&str> {
        let (template, ordinal) = claim.rsplit_once('-')?;
        let template = template.strip_suffix(&self.set)?.strip_suffix('-')?;
        let is_number = !ordinal.is_empty() && ordinal.bytes().all(|b| b.is_ascii_digit());
        let mut templates = self.templates.iter().filter(|_| is_number);
        let found = templates.find(|(name, _)| name == template);
        found.map(|(_, storage)| storage.as_str())
    }
}

fn text(quantity: &Value) -> String {
    quantity
        .as_str()
        .map_or_else(|| quantity.to_string(), str::to_owned)
}

/// Parses a quantity to billionths; `None` if it is invalid.
fn size(quantity: &Value) -> Option<i128> {
    Some(Quantity::parse(&text(quantity))?.billionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(storage: &str, class: &str) -> Value {
        json!({"metadata": {"name": "db", "namespace": "ns"}, "spec": {"volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": {"storageClassName": class, "resources": {"requests": {"storage": storage}}}},
            {"metadata": {"name": "log"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}})
    }

    #[test]
    fn volumes_that_only_grow_are_expanded() {
        let expansion = Expansion::between(&set("1Gi", "a"), &set("1.5Gi", "a")).unwrap();
        assert_eq!(expansion.templates, [("data".to_owned(), "1.5Gi".to_owned())]);
        for other in [
            set("1Gi", "a"),
            set("512Mi", "a"),
            set("2Gi", "b"),
            set("much", "a"),
        ] {
            assert_eq!(Expansion::between(&set("1Gi", "a"), &other), None);
        }
    }

    #[test]
    fn a_claim_is_known_by_its_name() {
        let expansion = Expansion::between(&set("1Gi", "a"), &set("2G", "a")).unwrap();
        assert_eq!(expansion.wanted_of("data-db-0"), Some("2G"));
        assert_eq!(expansion.wanted_of("data-db-12"), Some("2G"));
        for other in [
            "data-db",
            "data-db-",
            "data-db-x",
            "log-db-0",
            "data-other-db-0",
            "db-0",
        ] {
            assert_eq!(expansion.wanted_of(other), None, "{other}");
        }
    }

    #[test]
    fn quantities_are_compared_as_numbers() {
        let is = |text: &str| size(&json!(text)).unwrap();
        assert!(is("1Gi") > is("1G") && is("1000Mi") < is("1Gi") && is("1e9") == is("1G"));
        assert_eq!(size(&json!(5)), size(&json!("5")));
        assert_eq!(size(&json!("")), None);
    }
}
