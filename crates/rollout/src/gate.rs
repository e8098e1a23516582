//! Decides from measured numbers if a gate passes, fails, or is unclear.

use std::collections::BTreeMap;

use konverge_cel::cel_expression::CelExpression;
use konverge_config::GateConfig;

use super::step::GateReading;

/// Evaluates a gate on its numbers by name; a query without a number has the reason instead. An uncertain number makes
/// the gate unclear, never passed.
pub fn read_gate(gate: &GateConfig, numbers: &BTreeMap<String, Result<f64, String>>) -> GateReading {
    let mut known = BTreeMap::new();
    for name in gate.queries().into_keys() {
        match numbers.get(name) {
            Some(Ok(number)) if number.is_finite() => {
                known.insert(name, *number);
            }
            Some(Ok(number)) => return GateReading::Unclear(format!("`{name}` is {number}")),
            Some(Err(why)) => return GateReading::Unclear(format!("`{name}`: {why}")),
            None => return GateReading::Unclear(format!("the query `{name}` was not sent")),
        }
    }
    let shown: Vec<_> = known
        .iter()
        .map(|(name, number)| format!("{name} = {number}"))
        .collect();
    let shown = shown.join(", ");
    let holds = |expression: &Option<String>| {
        let Some(text) = expression else { return Ok(None) };
        let expression = CelExpression::compile(text).map_err(|error| error.to_string())?;
        let holds = expression.holds_for(&known).map_err(|error| error.to_string())?;
        Ok::<_, String>(Some(holds))
    };
    match (holds(&gate.least), holds(&gate.fail), holds(&gate.pass)) {
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => {
            GateReading::Unclear(format!("{why} ({shown})"))
        }
        (Ok(Some(false)), ..) => GateReading::Unclear(format!("too little data for a decision ({shown})")),
        (_, Ok(Some(true)), _) => GateReading::Fail(shown),
        (.., Ok(Some(true))) => GateReading::Pass(shown),
        _ => GateReading::Unclear(format!("neither `pass` nor `fail` is true ({shown})")),
    }
}

#[cfg(test)]
mod tests {
    use konverge_config::Config;

    use super::*;

    const GATE: &str = "gates: {slo: {prometheus: {url_env: PROM_URL, query: q, values: {requests: r}}, pass: 'value < 0.01', fail: 'value > 0.05', least: 'requests > 20'}}\n";

    fn gate() -> GateConfig {
        Config::parse(GATE).unwrap().gates.remove("slo").unwrap()
    }

    fn read(value: Result<f64, &str>, requests: Result<f64, &str>) -> GateReading {
        let numbers = [("value", value), ("requests", requests)];
        let numbers = numbers.map(|(name, one)| (name.to_owned(), one.map_err(str::to_owned)));
        read_gate(&gate(), &numbers.into())
    }

    #[test]
    fn only_a_number_that_says_so_passes() {
        assert!(matches!(read(Ok(0.001), Ok(500.0)), GateReading::Pass(_)));
        assert!(matches!(read(Ok(0.5), Ok(500.0)), GateReading::Fail(_)));
        for (value, requests) in [
            (Ok(0.03), Ok(500.0)),
            (Ok(0.001), Ok(20.0)),
            (Ok(0.5), Ok(1.0)),
            (Ok(f64::NAN), Ok(500.0)),
            (Ok(f64::NEG_INFINITY), Ok(500.0)),
            (Ok(0.001), Ok(f64::INFINITY)),
            (Err("no series"), Ok(500.0)),
            (Ok(0.001), Err("3 series")),
            (
                Err("Prometheus does not answer"),
                Err("Prometheus does not answer"),
            ),
        ] {
            let read = read(value, requests);
            assert!(
                matches!(read, GateReading::Unclear(_)),
                "{value:?} {requests:?}: {read:?}"
            );
        }
        let nothing = read_gate(&gate(), &BTreeMap::new());
        assert!(matches!(nothing, GateReading::Unclear(_)), "{nothing:?}");
    }

    #[test]
    fn if_both_are_true_it_fails_and_an_expression_without_an_answer_is_unclear() {
        let both = GATE.replace("value > 0.05", "value > 0.0");
        let both = Config::parse(&both).unwrap().gates.remove("slo").unwrap();
        let numbers = |value| {
            let numbers = [("value", value), ("requests", 500.0)];
            numbers
                .map(|(name, number): (&str, f64)| (name.to_owned(), Ok(number)))
                .into()
        };
        assert!(matches!(read_gate(&both, &numbers(0.001)), GateReading::Fail(_)));
        let no_answer = GATE.replace("value < 0.01", "value + 1.0");
        let no_answer = Config::parse(&no_answer).unwrap().gates.remove("slo").unwrap();
        assert!(matches!(
            read_gate(&no_answer, &numbers(0.001)),
            GateReading::Unclear(_)
        ));
    }
}
