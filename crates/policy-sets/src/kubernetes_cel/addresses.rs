//! The CEL libraries of Kubernetes for IP addresses and networks.

use std::net::IpAddr;

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        functions::Function,
        types::{CelString, STRING_TYPE, Type},
        value::CowVal,
    },
    objects::Opaque,
};
use ipnet::IpNet;

use super::arguments::{error, function, method, method_with, opaque, text, wrapped};

type AddressTest = fn(IpAddr) -> bool;

/// An IP address as a CEL value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address(IpAddr);

impl Opaque for Address {
    fn runtime_type_name(&self) -> &str {
        "net.IP"
    }
}

/// A network (CIDR) as a CEL value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network(IpNet);

impl Opaque for Network {
    fn runtime_type_name(&self) -> &str {
        "net.CIDR"
    }
}

/// Parses an address as the API server does: IPv4 in IPv6 notation is invalid.
fn parse_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (!is_mapped).then_some(address)
}

/// Returns the first argument of a function.
fn first(arguments: &[CowVal<'_, '_>]) -> Result<Option<CelValue>, ExecutionError> {
    let value = arguments.first();
    value.map(|value| CelValue::try_from(value.as_ref())).transpose()
}

/// Converts an address or a network to a string.
fn printed<'b, 'v>(arguments: &[CowVal<'b, 'v>]) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = first(arguments)?.ok_or_else(|| error("string", "it needs a value"))?;
    let text = match (opaque::<Address>(&value), opaque::<Network>(&value)) {
        (Some(Address(address)), _) => address.to_string(),
        (None, Some(Network(network))) => network.to_string(),
        (None, None) => return Err(error("string", "it needs an address or a network")),
    };
    Ok(CowVal::owned(CelString::from(text)))
}

fn parse_network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    let is_plain = prefix == "0" || !prefix.starts_with(['0', '+']);
    let prefix = prefix.parse().ok().filter(|_| is_plain)?;
    IpNet::new(parse_address(address)?, prefix).ok().map(Network)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn address(function: &str, value: &CelValue) -> Result<IpAddr, ExecutionError> {
    let address = match value {
        CelValue::String(text) => parse_address(text),
        value => opaque(value).map(|Address(address)| address),
    };
    address.ok_or_else(|| error(function, "it needs an address"))
}

fn network(function: &str, value: &CelValue) -> Result<IpNet, ExecutionError> {
    let network = opaque::<Network>(value).map(|Network(network)| network);
    network.ok_or_else(|| error(function, "it needs a network"))
}

/// Declares the functions whose name also exists for another type.
pub(super) fn declare(env: &mut Env) {
    let texts: [(&str, &str, Function); 2] = [
        ("ip_to_string", "net.IP", |found| printed(&found)),
        ("cidr_to_string", "net.CIDR", |found| printed(&found)),
    ];
    let _ = env.add_overload("ip", "string_to_ip", vec![STRING_TYPE], |found| {
        let address = match first(&found)? {
            Some(CelValue::String(text)) => parse_address(&text),
            _ => None,
        };
        let address = address.ok_or_else(|| error("ip", "it is not an address"))?;
        Ok(CowVal::Owned(wrapped(Address(address)).try_into()?))
    });
    let of_network = Type::new_opaque_type("net.CIDR");
    let _ = env.add_member_overload("ip", "cidr_ip", of_network, Vec::new(), |found| {
        let network = network("ip", &first(&found)?.unwrap_or(CelValue::Null))?;
        Ok(CowVal::Owned(wrapped(Address(network.addr())).try_into()?))
    });
    for (id, name, function) in texts {
        let _ = env.add_overload("string", id, vec![Type::new_opaque_type(name)], function);
    }
}

/// Adds the library to a context.
pub(super) fn add(context: &mut Context) {
    function(context, "isIP", |name, value| {
        Ok(CelValue::Bool(parse_address(&text(name, value)?).is_some()))
    });
    function(context, "ip.isCanonical", |name, value| {
        let text = text(name, value)?;
        let address = parse_address(&text).ok_or_else(|| error(name, "it is not an address"))?;
        Ok(CelValue::Bool(address.to_string() == *text))
    });
    method(context, "family", |name, this| {
        let is_v4 = address(name, this)?.is_ipv4();
        Ok(CelValue::Int(if is_v4 { 4 } else { 6 }))
    });
    let kinds: [(&'static str, AddressTest); 5] = [
        ("isLoopback", |address| address.is_loopback()),
        ("isUnspecified", |address| address.is_unspecified()),
        ("isLinkLocalMulticast", |address| match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }),
        ("isLinkLocalUnicast", is_link_local),
        ("isGlobalUnicast", |address| {
            let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
            let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            !special && !broadcast && !is_link_local(address)
        }),
    ];
    for (kind, is) in kinds {
        method(context, kind, move |name, this| {
            Ok(CelValue::Bool(is(address(name, this)?)))
        });
    }
    function(context, "isCIDR", |name, value| {
        Ok(CelValue::Bool(parse_network(&text(name, value)?).is_some()))
    });
    function(context, "cidr", |name, value| {
        let parsed = parse_network(&text(name, value)?);
        parsed
            .map(wrapped)
            .ok_or_else(|| error(name, "it is not a network"))
    });
    method_with(context, "containsIP", |name, this, other| {
        Ok(CelValue::Bool(
            network(name, this)?.contains(&address(name, other)?),
        ))
    });
    method_with(context, "containsCIDR", |name, this, other| {
        let outer = network(name, this)?;
        let inner = match other {
            CelValue::String(text) => parse_network(text).map(|Network(network)| network),
            other => Some(network(name, other)?),
        };
        let inner = inner.ok_or_else(|| error(name, "it is not a network"))?;
        let is_narrower = outer.prefix_len() <= inner.prefix_len();
        Ok(CelValue::Bool(is_narrower && outer.contains(&inner.addr())))
    });
    method(context, "masked", |name, this| {
        Ok(wrapped(Network(network(name, this)?.trunc())))
    });
    method(context, "prefixLength", |name, this| {
        Ok(CelValue::Int(network(name, this)?.prefix_len().into()))
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_fail, all_hold};

    #[test]
    fn an_address_is_of_its_kinds() {
        all_hold(&[
            "['10.0.0.1', '0.0.0.0', '::1', '2001:DB8::1'].all(a, isIP(a))",
            "['', '10.0.0', '010.0.0.1', '10.0.0.1/8', '::ffff:10.0.0.1'].all(a, !isIP(a))",
            "ip.isCanonical('10.0.0.1') && !ip.isCanonical('2001:DB8::1')",
            "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6",
            "['127.0.0.1', '127.9.9.9', '::1'].all(a, ip(a).isLoopback())",
            "['128.0.0.1', '::2'].all(a, !ip(a).isLoopback())",
            "['0.0.0.0', '::'].all(a, ip(a).isUnspecified())",
            "['0.0.0.1', '::1'].all(a, !ip(a).isUnspecified())",
            "['224.0.0.1', '224.0.0.255', 'ff02::1', 'ff12::1'].all(a, ip(a).isLinkLocalMulticast())",
            "['224.0.1.1', '10.0.0.1', 'ff05::1', 'fe80::1', '::1'].all(a, !ip(a).isLinkLocalMulticast())",
            "['169.254.1.1', 'fe80::1'].all(a, ip(a).isLinkLocalUnicast())",
            "['169.255.1.1', 'fc00::1', 'ff02::1'].all(a, !ip(a).isLinkLocalUnicast())",
            "['10.0.0.1', '8.8.8.8', '2001:db8::1', 'fc00::1'].all(a, ip(a).isGlobalUnicast())",
            "['0.0.0.0', '127.0.0.1', '224.0.1.1', '255.255.255.255', '169.254.1.1'].all(a, !ip(a).isGlobalUnicast())",
            "['::', '::1', 'ff05::1', 'fe80::1'].all(a, !ip(a).isGlobalUnicast())",
        ]);
        all_fail(&[
            "isIP(1)",
            "ip('10.0.0') == ip('10.0.0')",
            "ip(1) == ip(1)",
            "ip.isCanonical('10.0.0')",
            "semver('1.2.3').family() == 4",
            "cidr('10.0.0.0/8').family() == 4",
            "string(semver('1.2.3')) == ''",
        ]);
    }

    #[test]
    fn a_network_has_a_prefix_of_its_family() {
        all_hold(&[
            "['10.0.0.0/0', '10.0.0.0/8', '10.0.0.1/32', '::/0', '2001:db8::1/128'].all(n, isCIDR(n))",
            "['10.0.0.0', '10.0.0.0/', '10.0.0.0/33', '10.0.0.0/-1', 'x/8', '::/129'].all(n, !isCIDR(n))",
            "['10.0.0.0/08', '10.0.0.0/00', '10.0.0.0/+8', '::ffff:10.0.0.0/104'].all(n, !isCIDR(n))",
            "cidr('10.1.2.3/8').prefixLength() == 8 && cidr('::/128').prefixLength() == 128",
            "string(cidr('10.1.2.3/8')) == '10.1.2.3/8' && cidr('2001:db8::1/8').ip() == ip('2001:db8::1')",
            "string(cidr('10.1.2.3/12').masked()) == '10.0.0.0/12' && string(cidr('10.1.2.3/0').masked()) == '0.0.0.0/0'",
            "string(cidr('10.1.2.3/32').masked()) == '10.1.2.3/32'",
            "string(cidr('2001:db8:1::1/32').masked()) == '2001:db8::/32' && string(cidr('1::1/0').masked()) == '::/0'",
            "string(cidr('2001:db8::1/128').masked()) == '2001:db8::1/128'",
        ]);
        all_fail(&[
            "isCIDR(1)",
            "cidr('10.0.0.0/33').prefixLength() == 33",
            "cidr(8).prefixLength() == 8",
            "ip('10.0.0.1').prefixLength() == 32",
            "ip('10.0.0.1').masked() == ip('10.0.0.1')",
        ]);
    }

    #[test]
    fn a_network_contains_narrower_networks_within_it() {
        all_hold(&[
            "['10.1.2.3', '10.255.255.255'].all(a, cidr('10.0.0.0/8').containsIP(a))",
            "cidr('0.0.0.0/0').containsIP('1.2.3.4') && cidr('::/0').containsIP('2001:db8::1') && cidr('10.0.0.1/32').containsIP('10.0.0.1')",
            "!cidr('0.0.0.0/0').containsIP('::1') && !cidr('::/96').containsIP('0.0.0.1') && !cidr('10.0.0.1/32').containsIP('10.0.0.2')",
            "!cidr('0.0.0.0/0').containsCIDR('::/0') && !cidr('::/0').containsCIDR('0.0.0.0/0')",
            "cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.0'))",
            "['10.1.0.0/16', '10.0.0.0/8', '10.0.0.1/32'].all(n, cidr('10.0.0.0/8').containsCIDR(n))",
            "['10.0.0.0/7', '11.0.0.0/16', '::/8'].all(n, !cidr('10.0.0.0/8').containsCIDR(n))",
            "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16')) && !cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/7'))",
        ]);
        all_fail(&[
            "cidr('10.0.0.0/8').containsIP('x')",
            "cidr('10.0.0.0/8').containsIP(cidr('10.0.0.0/8'))",
            "cidr('10.0.0.0/8').containsCIDR('10.0.0.1')",
            "cidr('10.0.0.0/8').containsCIDR(ip('10.0.0.1'))",
            "ip('10.0.0.1').containsIP('10.0.0.1')",
        ]);
    }
}
