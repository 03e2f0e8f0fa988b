//! Tokens of service accounts: JSON web tokens that the server signs and later accepts.
//!
//! A token is signed with HMAC-SHA256 and the key of the server. kube-apiserver signs with a private key, so
//! that others can verify tokens with the public one; here only the server itself can. Pure: key, time and
//! claims are parameters. Whether the account of a token still exists is checked in `accounts`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{AUTHENTICATED, quoted_list};
use crate::random::SecretKey;
use crate::user::User;

/// The issuer of tokens, and their audience unless the request names others.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// The header of every token. A token with another header is not accepted, so the sender cannot choose the
/// algorithm.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// How far the clocks of servers may differ: times of a token are checked with this tolerance, as in
/// kube-apiserver.
pub(super) const LEEWAY_SECONDS: i64 = 60;

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    #[serde(rename = "aud")]
    pub(crate) audiences: Vec<String>,
    /// In seconds since 1970, like the other times.
    #[serde(rename = "exp")]
    pub(crate) expires: i64,
    #[serde(rename = "iat")]
    pub(crate) issued: i64,
    #[serde(rename = "iss")]
    pub(crate) issuer: String,
    #[serde(rename = "jti")]
    pub(crate) id: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) bound: BoundClaims,
    #[serde(rename = "nbf")]
    pub(crate) not_before: i64,
    #[serde(rename = "sub")]
    pub(crate) subject: String,
}

/// The account of a token, and the object that the token is bound to. A token of a pod also names its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundClaims {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<ObjectClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ObjectClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectClaim>,
    pub(crate) serviceaccount: ObjectClaim,
}

/// An object in a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectClaim {
    pub(crate) name: String,
    /// Empty for the node of a pod if the node does not exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

impl Claims {
    /// Returns the signed token.
    pub(crate) fn sign(&self, key: &SecretKey) -> String {
        let claims = serde_json::to_vec(self).unwrap_or_default();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&hmac_key(key), signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Returns the claims of a token that was signed with `key`, or `None` if it is not a token of this
    /// issuer. The error is that of kube-apiserver.
    pub(crate) fn verify(key: &SecretKey, token: &str) -> Option<Result<Self, String>> {
        #[derive(Deserialize)]
        struct Issued {
            iss: String,
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok().filter(|Issued { iss }| iss == ISSUER)?;
        let is_signed = header == URL_SAFE_NO_PAD.encode(HEADER)
            && hmac::verify(&hmac_key(key), signed.as_bytes(), &signature).is_ok();
        if !is_signed {
            return Some(Err("go-jose/go-jose: error in cryptographic primitive".to_owned()));
        }
        Some(serde_json::from_slice(&claims).map_err(|error| error.to_string()))
    }

    /// Returns an error unless the token is valid now.
    pub(crate) fn check_time(&self, now: Timestamp) -> Result<(), String> {
        let now = now.as_second();
        if now + LEEWAY_SECONDS < self.not_before {
            return Err("service account token is not valid yet".to_owned());
        }
        if now - LEEWAY_SECONDS > self.expires {
            return Err("service account token has expired".to_owned());
        }
        Ok(())
    }

    /// Returns those of the requested audiences that the token is meant for, or an error if there are none.
    pub(crate) fn check_audiences(&self, requested: &[String]) -> Result<Vec<String>, String> {
        let common: Vec<String> =
            requested.iter().filter(|audience| self.audiences.contains(audience)).cloned().collect();
        if common.is_empty() {
            let (own, requested) = (quoted_list(&self.audiences), quoted_list(requested));
            return Err(format!("token audiences {own} is invalid for the target audiences {requested}"));
        }
        Ok(common)
    }

    /// Returns the user of a request with the token.
    pub(crate) fn user(&self) -> User {
        let BoundClaims { namespace, node, pod, serviceaccount, .. } = &self.bound;
        let mut user = User::new(&self.subject)
            .uid(&serviceaccount.uid)
            .group("system:serviceaccounts")
            .group(format!("system:serviceaccounts:{namespace}"))
            .group(AUTHENTICATED)
            .extra("authentication.kubernetes.io/credential-id", format!("JTI={}", self.id));
        for (kind, object) in [("node", node), ("pod", pod)] {
            let Some(ObjectClaim { name, uid }) = object else { continue };
            user = user.extra(format!("authentication.kubernetes.io/{kind}-name"), name);
            if !uid.is_empty() {
                user = user.extra(format!("authentication.kubernetes.io/{kind}-uid"), uid);
            }
        }
        user
    }
}

fn hmac_key(key: &SecretKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            audiences: vec![ISSUER.to_owned(), "x".to_owned()],
            expires: 4_600,
            issued: 1_000,
            issuer: ISSUER.to_owned(),
            id: "id".to_owned(),
            bound: BoundClaims::default(),
            not_before: 1_000,
            subject: "system:serviceaccount:n:a".to_owned(),
        }
    }

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_bytes([byte; SecretKey::BYTES])
    }

    /// Compares with test case 1 of RFC 4231, whose key is padded with zeros like every short key.
    #[test]
    fn signature_is_hmac_sha256() {
        let mut bytes = [0; SecretKey::BYTES];
        bytes[..20].fill(0x0b);
        let digest = hmac::sign(&hmac_key(&SecretKey::from_bytes(bytes)), b"Hi There");
        let expected =
            [0xb034_4c61_d8db_3853, 0x5ca8_afce_af0b_f12b, 0x881d_c200_c983_3da7, 0x26e9_376c_2e32_cff7_u64];
        assert_eq!(digest.as_ref(), expected.map(u64::to_be_bytes).concat());
    }

    #[test]
    fn forged_tokens_are_refused() {
        let token = claims().sign(&key(1));
        assert_eq!(Claims::verify(&key(1), &token), Some(Ok(claims())));
        let parts: Vec<&str> = token.split('.').collect();
        let [header, payload, signature] = parts[..] else { panic!("{token}") };
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let other = Claims { subject: "system:serviceaccount:kube-system:admin".to_owned(), ..claims() };
        let other = other.sign(&key(2));
        let other_payload = other.split('.').nth(1).unwrap();
        let none = encode(r#"{"alg":"none"}"#);
        for forged in [
            other.clone(),
            format!("{header}.{other_payload}.{signature}"),
            format!("{none}.{payload}."),
            format!("{none}.{payload}.{signature}"),
            format!("{header}.{payload}."),
            format!("{header}.{payload}.{}", &signature[..40]),
            format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode([0; 32])),
        ] {
            assert!(Claims::verify(&key(1), &forged).unwrap().is_err(), "{forged}");
        }
        let foreign = encode(r#"{"iss":"https://other.example"}"#);
        for unknown in [
            String::new(),
            "a".to_owned(),
            "..".to_owned(),
            format!("{header}.{payload}"),
            format!("{header}.{payload}.!"),
            format!("{header}.{payload}.{signature}="),
            format!("{token}.{signature}"),
            format!("{header}.{foreign}.{signature}"),
            token[..token.len() / 2].to_owned(),
        ] {
            assert_eq!(Claims::verify(&key(1), &unknown), None, "{unknown}");
        }
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let token = claims().sign(&key(1));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(!matches!(Claims::verify(&key(1), &changed), Some(Ok(_))), "{changed}");
        }
    }

    #[test]
    fn times_are_checked_with_tolerance() {
        let at = |second: i64| claims().check_time(Timestamp::from_second(second).unwrap());
        for (second, valid) in [(939, false), (940, true), (4_600, true), (4_660, true), (4_661, false)] {
            assert_eq!(at(second).is_ok(), valid, "{second}");
        }
    }
}
