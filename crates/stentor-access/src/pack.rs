//! Grants as bytes, so that another process can go on with those whom they let in. Tokens are not
//! among them: what was verified need not be again, as long as its key is there.

use stentor_wire::pack::{Packed, Packer, Unpacked, Unpacker, format};

use crate::grant::{Grant, Scope};
use crate::keys::KeyId;
use crate::patterns::Patterns;
use crate::permissions::Permissions;

impl Packed for KeyId {
    const FORMAT: u64 = format("KeyId", &[u64::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        self.number().pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<KeyId> {
        u64::unpack(input).map(KeyId::from_number)
    }
}

impl Packed for Grant {
    const FORMAT: u64 = format("Grant key publish read origin expires", &[KeyId::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        let Grant { scope, expires_unix_s } = self;
        scope.key().pack(out);
        for list in [scope.publish(), scope.read()] {
            list.iter().map(str::to_owned).collect::<Vec<_>>().pack(out);
        }
        scope.origin().to_owned().pack(out);
        expires_unix_s.pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Grant> {
        let key = KeyId::unpack(input)?;
        let mut list = || {
            let texts = Vec::<String>::unpack(input)?;
            Patterns::parse(texts.iter().map(String::as_str)).map_err(|_| NO_PATTERNS)
        };
        let permissions = Permissions { publish: list()?, read: list()? };
        let scope = Scope::new(key, &permissions, &String::unpack(input)?);
        Ok(Grant { scope, expires_unix_s: Option::unpack(input)? })
    }
}

const NO_PATTERNS: &str = "What was packed has patterns that are none.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_come_back_as_they_were() {
        let patterns = |texts: &[&str]| Patterns::parse(texts.iter().copied()).unwrap();
        for expires_unix_s in [None, Some(0), Some(u64::MAX)] {
            let permissions =
                Permissions { publish: patterns(&["/a/*"]), read: patterns(&["/b/**", "/c"]) };
            let scope = Scope::new(KeyId::from_number(7), &permissions, "HS256 a b");
            let grant = Grant { scope, expires_unix_s };
            let mut out = Packer::new(0);
            grant.pack(&mut out);
            let bytes = out.into_bytes();
            let mut input = Unpacker::new(&bytes, 0);
            assert_eq!(Grant::unpack(&mut input), Ok(grant));
            assert!(input.is_at_end());
            for end in 0..bytes.len() {
                assert!(Grant::unpack(&mut Unpacker::new(&bytes[..end], 0)).is_err());
            }
        }
    }
}
