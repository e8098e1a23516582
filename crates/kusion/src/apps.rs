//! [`AppConfigurations`]: the applications in the output of KCL, recognized by their schema types.

use serde_json::{Map, Value};

use super::KusionError;

/// The key under which KCL prints the schema of a value.
pub(super) const SCHEMA: &str = "_type";

/// The name of the schema of an application.
const APP_SCHEMA: &str = "AppConfiguration";

/// The packages whose AppConfiguration is that of Kusion 0.10.
const OLD_PACKAGES: [&str; 2] = ["catalog.models.schema.v1", "models.schema.v1"];

/// The keys that an application may have.
const APP_KEYS: [&str; 6] = [SCHEMA, "name", "workload", "accessories", "labels", "annotations"];

/// Keys that Kusion reads and then ignores.
const WITHOUT_EFFECT: [&str; 2] = ["labels", "annotations"];

/// The applications of a stack, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct AppConfigurations {
    pub(super) apps: Vec<App>,
    /// The names of the values in the output that are not applications.
    pub(super) others: Vec<String>,
}

/// An application: an AppConfiguration of the stack.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct App {
    pub(super) name: String,
    pub(super) workload: Option<Part>,
    /// The accessories, sorted by key.
    pub(super) accessories: Vec<(String, Part)>,
    /// The keys that are set and have no effect.
    pub(super) without_effect: Vec<&'static str>,
}

/// The workload or an accessory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    /// The schema of the part with its package, such as `network.Network`; `None` for a plain dictionary.
    pub(super) schema: Option<String>,
    /// The value in KCL's output, with the types of its schemas.
    pub(super) config: Value,
}

/// Returns true if a KCL file may contain applications, so that its program must be compiled with the types
/// of schemas.
pub fn may_hold_apps(file: &[u8]) -> bool {
    defines_apps(file) || holds(file, "workload") || holds(file, "accessories")
}

/// Returns true if a file of a package may define the schema of applications, or a schema derived from it.
pub fn defines_apps(file: &[u8]) -> bool {
    holds(file, APP_SCHEMA)
}

fn holds(file: &[u8], word: &str) -> bool {
    file.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Returns the name of an application, if KCL's output without the types of schemas contains one.
pub fn untyped_app(documents: &[Value]) -> Option<&str> {
    let [Value::Object(values)] = documents else {
        return None;
    };
    let is_app = |value: &Value| value["workload"]["containers"].is_object() && value.get("kind").is_none();
    let (name, _) = values
        .iter()
        .find(|(_, value)| is_app(value))
        .filter(|_| !is_resource(values))?;
    Some(name)
}

impl AppConfigurations {
    /// Reads the output of a compilation with the types of schemas; `None` if it contains no application.
    ///
    /// # Errors
    /// An application is for an earlier version of Kusion, or invalid.
    pub fn recognize(documents: &[Value]) -> Result<Option<Self>, KusionError> {
        let [Value::Object(values)] = documents else {
            return Ok(None);
        };
        if is_resource(values) || !values.values().any(is_app) {
            return Ok(None);
        }
        let mut found = Self {
            apps: Vec::new(),
            others: Vec::new(),
        };
        for (name, value) in values {
            let Some(app) = value.as_object().filter(|_| is_app(value)) else {
                found.others.push(name.clone());
                continue;
            };
            found.apps.push(App::read(name, app)?);
        }
        found.apps.sort_by(|a, b| a.name.cmp(&b.name));
        found.others.sort();
        Ok(Some(found))
    }
}

/// Returns true for a Spec, a resource of a Spec, or a Kubernetes object. A program may output such values
/// besides its applications.
fn is_resource(values: &Map<String, Value>) -> bool {
    let is_text = |key: &str| values.get(key).is_some_and(Value::is_string);
    let is_spec = values.get("resources").is_some_and(Value::is_array);
    is_spec
        || (is_text("id") && values.contains_key("attributes"))
        || (is_text("apiVersion") && is_text("kind"))
}

/// Returns true for an instance of an AppConfiguration, of a schema derived from it, or a dictionary with the
/// same keys.
fn is_app(value: &Value) -> bool {
    let schema = value[SCHEMA].as_str().unwrap_or_default();
    let named = schema.rsplit('.').next() == Some(APP_SCHEMA);
    let typed_workload = value["workload"][SCHEMA].is_string();
    let mut accessories = value["accessories"].as_object().into_iter().flatten();
    named || typed_workload || accessories.any(|(_, accessory)| accessory[SCHEMA].is_string())
}

impl App {
    fn read(name: &str, values: &Map<String, Value>) -> Result<Self, KusionError> {
        let refuse = |message: String| KusionError::App {
            app: name.to_owned(),
            message,
        };
        let schema = values.get(SCHEMA).and_then(Value::as_str).unwrap_or_default();
        let (package, _) = schema.rsplit_once('.').unwrap_or_default();
        if OLD_PACKAGES
            .iter()
            .any(|old| package == *old || package.starts_with(&format!("{old}.")))
        {
            return Err(KusionError::OldApp {
                app: name.to_owned(),
                schema: schema.to_owned(),
            });
        }
        if let Some(unknown) = values.keys().find(|key| !APP_KEYS.contains(&key.as_str())) {
            return Err(refuse(format!(
                "`{}` is not a key of an AppConfiguration",
                unknown.escape_debug()
            )));
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with('-') || name.ends_with('-') {
            return Err(KusionError::AppName { app: name.to_owned() });
        }
        let workload = match values.get("workload") {
            None | Some(Value::Null) => None,
            Some(config @ Value::Object(_)) => Some(Part::new(config)),
            Some(_) => return Err(refuse("`workload` must be an instance of a schema".to_owned())),
        };
        let mut accessories = Vec::new();
        match values.get("accessories") {
            None | Some(Value::Null) => {}
            Some(Value::Object(parts)) => {
                for (key, config) in parts.iter().filter(|(key, _)| *key != SCHEMA) {
                    accessories.push((key.clone(), Part::new(config)));
                }
            }
            Some(_) => return Err(refuse("`accessories` must be a dictionary".to_owned())),
        }
        accessories.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self {
            name: name.to_owned(),
            workload,
            accessories,
            without_effect: WITHOUT_EFFECT
                .into_iter()
                .filter(|key| values.get(*key).is_some_and(is_set))
                .collect(),
        })
    }
}

fn is_set(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|texts| texts.keys().any(|key| key != SCHEMA))
}

impl Part {
    fn new(config: &Value) -> Self {
        Self {
            schema: config[SCHEMA].as_str().map(str::to_owned),
            config: config.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_spec_and_plain_values_are_no_applications() {
        for value in [
            json!({"resources": [], "shop": {"_type": "kam.v1.AppConfiguration"}}),
            json!({"id": "x", "type": "Kubernetes", "attributes": {"spec": {"workload": {"_type": "a.B"}}}}),
            json!({"a": {"b": 1}}),
            json!([]),
            json!({"apiVersion": "v1", "kind": "Pod", "workload": {"containers": {}}}),
            json!({"apiVersion": "core.oam.dev/v1", "kind": "Component", "spec": {"workload": {"_type": "apps.Deployment"}}}),
        ] {
            assert_eq!(
                AppConfigurations::recognize(std::slice::from_ref(&value)).unwrap(),
                None,
                "{value}"
            );
            assert_eq!(untyped_app(&[value]), None);
        }
    }

    #[test]
    fn derived_schemas_and_dictionaries_of_the_form_are_applications() {
        let workload = json!({"_type": "service.Service", "containers": {}});
        for app in [
            json!({"_type": "kam.v1.AppConfiguration"}),
            json!({"_type": "MyApp", "workload": workload}),
            json!({"workload": workload}),
            json!({"accessories": {"net": {"_type": "network.Network"}}}),
        ] {
            let found = AppConfigurations::recognize(&[json!({"b": app, "a": {"x": 1}, "n": 3})]).unwrap();
            let found = found.unwrap();
            assert_eq!(found.apps.len(), 1, "{app}");
            assert_eq!(found.others, ["a", "n"]);
        }
    }

    #[test]
    fn values_with_the_names_of_a_spec_hide_no_application() {
        let app = json!({"_type": "kam.v1.AppConfiguration"});
        for (name, value) in [
            ("resources", json!({"cpu": "1"})),
            ("attributes", json!({"a": 1})),
            ("apiVersion", json!("v1")),
        ] {
            let values = json!({"shop": app, name: value});
            let found = AppConfigurations::recognize(&[values]).unwrap().unwrap();
            assert_eq!(found.apps.len(), 1, "{name}");
            assert_eq!(found.others, [name]);
        }
    }

    #[test]
    fn what_kubernetes_or_today_s_kusion_cannot_take_is_refused() {
        let app = |name: &str, value: Value| {
            let mut values = Map::new();
            values.insert(name.to_owned(), value);
            AppConfigurations::recognize(&[Value::Object(values)]).unwrap_err()
        };
        let typed = |schema: &str| json!({"_type": schema});
        assert!(matches!(
            app("my_app", typed("kam.v1.AppConfiguration")),
            KusionError::AppName { .. }
        ));
        assert!(matches!(
            app("Shop", typed("kam.v1.AppConfiguration")),
            KusionError::AppName { .. }
        ));
        let old = app("shop", typed("catalog.models.schema.v1.AppConfiguration"));
        assert!(matches!(old, KusionError::OldApp { .. }));
        let unknown = app(
            "shop",
            json!({"_type": "kam.v1.AppConfiguration", "database": {}}),
        );
        assert!(unknown.to_string().contains("`database`"), "{unknown}");
    }

    #[test]
    fn an_untyped_application_is_named() {
        let documents = [json!({"shop": {"workload": {"containers": {"web": {}}}}})];
        assert_eq!(untyped_app(&documents), Some("shop"));
    }
}
