//! [`CloudEnvironment`]: the variables that a login reads.

use std::collections::BTreeMap;

/// The variables that a login reads.
#[derive(Clone, Default)]
pub struct CloudEnvironment(BTreeMap<String, String>);

impl std::fmt::Debug for CloudEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl CloudEnvironment {
    /// Creates an environment of these variables only.
    pub fn new(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }

    /// Sets a variable, or replaces its value. Without a value, nothing changes.
    #[must_use]
    pub fn with<'v>(mut self, name: &str, value: impl Into<Option<&'v str>>) -> Self {
        let value = value.into();
        self.0
            .extend(value.map(|value| (name.to_owned(), value.to_owned())));
        self
    }

    /// Unsets variables.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        names.iter().for_each(|name| drop(self.0.remove(*name)));
        self
    }

    /// Returns the value of a variable if it is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns true if a variable is set and not empty.
    pub(super) fn has(&self, name: &str) -> bool {
        self.var(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_not_set_and_no_value_is_shown() {
        let environment = CloudEnvironment::default()
            .with("AWS_REGION", "")
            .with("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .with("AWS_SECRET_ACCESS_KEY", "s3cret");
        assert!(!environment.has("AWS_REGION"));
        assert_eq!(environment.var("AWS_ACCESS_KEY_ID"), Some("AKIDEXAMPLE"));
        assert!(!format!("{environment:?}").contains("s3cret"));
        let without = environment.without(&["AWS_SECRET_ACCESS_KEY", "NOT_THERE"]);
        assert!(!without.has("AWS_SECRET_ACCESS_KEY") && without.has("AWS_ACCESS_KEY_ID"));
    }
}
