//! Compares requests and responses with the published API of GitLab: the names of each operation's parameters and of
//! the fields of its response, from the OpenAPI document, or from the reference where that document lacks an operation.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

/// An operation that Konverge uses.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    method: String,
    path: String,
    #[serde(default)]
    query: Vec<String>,
    #[serde(default)]
    body: Vec<String>,
    #[serde(default)]
    answer: Vec<String>,
}

static OPERATIONS: LazyLock<Vec<Operation>> =
    LazyLock::new(|| serde_json::from_str(include_str!("operations.json")).unwrap());

impl Operation {
    /// Returns the operation of a request. The segments of the path are still encoded.
    pub(super) fn of(method: &str, route: &str) -> Option<&'static Self> {
        let mut fitting: Vec<_> = OPERATIONS
            .iter()
            .filter(|one| one.method == method && fits(&one.path, route))
            .collect();
        // Prefer the path with fewer variables: `/members/all/{user_id}` before `/members/{x}/{y}`.
        fitting.sort_by_key(|one| one.path.matches('{').count());
        fitting.first().copied()
    }

    /// Returns the name of the operation for the list of recorded requests: `GET /projects/{id}`.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns an error if GitLab does not know a parameter of a request.
    pub(super) fn check(&self, query: &[(String, String)], body: &Value) -> Result<(), String> {
        for (key, value) in query {
            let key = key.strip_suffix("[]").unwrap_or(key);
            if !self.query.iter().any(|known| known == key) {
                return Err(format!("`{key}` is not a parameter"));
            }
            if key == "per_page" && !value.parse::<u64>().is_ok_and(|count| (1..=100).contains(&count)) {
                return Err(format!("per_page={value}"));
            }
        }
        match body {
            Value::Null if self.body.is_empty() => Ok(()),
            Value::Object(fields) => {
                let unknown = fields.keys().find(|key| !self.body.contains(key));
                unknown.map_or(Ok(()), |key| Err(format!("`{key}` is not a field of its body")))
            }
            other => Err(format!("its body is {other}")),
        }
    }

    /// Returns an error if GitLab does not document a field of a response, which the fake then made up.
    pub(super) fn check_answer(&self, answer: &Value) -> Result<(), String> {
        match answer {
            Value::Array(items) => items.iter().try_for_each(|item| self.check_answer(item)),
            Value::Object(fields) => {
                let unknown = fields.keys().find(|key| !self.answer.contains(key));
                unknown.map_or(Ok(()), |key| Err(format!("the fake answers with `{key}`")))
            }
            Value::Null => Ok(()),
            other => Err(format!("the fake answers {other}")),
        }
    }
}

/// Returns the names of all operations.
pub fn operations() -> Vec<String> {
    OPERATIONS.iter().map(Operation::name).collect()
}

fn fits(template: &str, route: &str) -> bool {
    let (template, route): (Vec<_>, Vec<_>) = (template.split('/').collect(), route.split('/').collect());
    template.len() == route.len()
        && template
            .iter()
            .zip(&route)
            .all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
}
