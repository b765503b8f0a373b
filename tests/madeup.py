"""Made-up secrets of many kinds, in the places where people put them.

`{A20}` stands for 20 random letters and digits, and so on for the other alphabets.  What is between
`[[` and `]]` is the secret.  No secret here was ever valid.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

_ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "B": string.ascii_letters + string.digits + "-_",
    "U": string.ascii_uppercase + string.digits,
    "L": string.ascii_lowercase + string.digits,
    "H": "0123456789abcdef",
    "D": string.digits,
    "X": string.ascii_letters + string.digits + "+/",
}
_BLANK = re.compile(r"\{([ABULHDX])(\d+)\}")

#: Tokens that their issuers gave a shape, by issuer.  They may stand anywhere.
TOKENS = {
    "1Password": ("ops_eyJ{A60}",),
    "Adafruit": ("aio_{A28}",),
    "age": ("AGE-SECRET-KEY-1{U58}",),
    "Airtable": ("pat{A14}.{H64}",),
    "Alibaba": ("LTAI{A20}",),
    "Anthropic": ("sk-ant-api03-{B93}AA", "sk-ant-oat01-{B80}"),
    "Atlassian": ("ATATT3{B60}={U8}", "ATCTT3{B60}={U8}"),
    "AWS": ("AKIA{U16}", "ASIA{U16}"),
    "Azure": ("abc8Q~{B34}",),
    "Buildkite": ("bkua_{H40}",),
    "CircleCI": ("CCIPAT_{A22}_{H40}",),
    "Contentful": ("CFPAT-{B43}",),
    "crates.io": ("cio{A32}",),
    "Databricks": ("dapi{H32}",),
    "DigitalOcean": ("dop_v1_{H64}", "doo_v1_{H64}", "dor_v1_{H64}"),
    "Discord": ("MTA{A21}.G{A5}.{B38}",),
    "Docker": ("dckr_pat_{B27}",),
    "Doppler": ("dp.pt.{A43}", "dp.st.prd.{A43}"),
    "Dynatrace": ("dt0c01.{U24}.{U64}",),
    "Figma": ("figd_{B40}",),
    "Fireworks": ("fw_{A24}",),
    "Fly.io": ("fo1_{B43}", "fm2_{X90}"),
    "GitHub": ("ghp_{A36}", "gho_{A36}", "ghs_{A36}", "github_pat_{A22}_{A59}"),
    "GitLab": ("glpat-{B20}", "gldt-{B20}", "glrt-{B20}", "glptt-{H40}"),
    "Google": ("AIza{B35}", "GOCSPX-{B28}", "ya29.{B60}"),
    "Grafana": ("glsa_{A32}_{H8}", "glc_eyJ{A60}"),
    "Groq": ("gsk_{A52}",),
    "Heroku": ("HRKU-AA{B58}",),
    "Hugging Face": ("hf_{A34}", "api_org_{A34}"),
    "JFrog": ("AKCp{A69}",),
    "JSON Web Token": ("eyJhbGciOiJI{A12}.eyJzdWIi{A30}.{B43}",),
    "Kaggle": ("KGAT_{H32}",),
    "LangSmith": ("lsv2_pt_{H32}_{H10}", "lsv2_sk_{H32}_{H10}"),
    "Linear": ("lin_api_{A40}",),
    "Mailchimp": ("{H32}-us12",),
    "Mailgun": ("key-{H32}",),
    "Neptune": ("eyJhcGlfYWRkcmVzcyI6{A80}==",),
    "Netlify": ("nfp_{A36}",),
    "New Relic": ("NRAK-{U27}", "NRJS-{H19}"),
    "Notion": ("ntn_{A46}", "secret_{A43}"),
    "npm": ("npm_{A36}",),
    "NuGet": ("oy2{L43}",),
    "NVIDIA": ("nvapi-{B64}",),
    "OpenAI": ("sk-{A48}", "sk-proj-{B74}", "sess-{A40}"),
    "OpenRouter": ("sk-or-v1-{H64}",),
    "Perplexity": ("pplx-{A48}",),
    "PlanetScale": ("pscale_tkn_{B43}", "pscale_pw_{B43}"),
    "Postman": ("PMAK-{H24}-{H34}",),
    "Prefect": ("pnu_{A36}",),
    "Pulumi": ("pul-{H40}",),
    "PyPI": ("pypi-AgEIcHlwaS5vcmc{B90}",),
    "Replicate": ("r8_{A37}",),
    "RubyGems": ("rubygems_{H48}",),
    "RunPod": ("rpa_{U40}",),
    "SendGrid": ("SG.{B22}.{B43}",),
    "Sentry": ("sntryu_{H64}", "sntrys_eyJ{A60}"),
    "Shopify": ("shpat_{H32}", "shpss_{H32}"),
    "Slack": ("xoxb-{D12}-{D12}-{A24}", "xapp-1-A{U10}-{D13}-{H64}",
              "https://hooks.slack.com/services/[[T{U8}/B{U8}/{A24}]]"),
    "SonarQube": ("sqp_{H40}", "squ_{H40}"),
    "Square": ("sq0atp-{B22}", "sq0csp-{B43}"),
    "Stripe": ("sk_live_{A24}", "rk_live_{A24}", "sk_test_{A24}", "whsec_{A32}"),
    "Supabase": ("sbp_{H40}", "sb_secret_{B31}"),
    "Tailscale": ("tskey-auth-{A17}-{A32}",),
    "Telegram": ("{D10}:AA{B33}",),
    "Terraform": ("{A14}.atlasv1.{B64}",),
    "Together": ("tgp_v1_{B43}",),
    "Twilio": ("SK{H32}",),
    "Vault": ("hvs.{B90}", "hvb.{B90}"),
    "Weights & Biases": ("wandb_v1_{B60}",),
    "xAI": ("xai-{A80}",),
    "Yandex": ("AQVN{B35}",),
}  # fmt: skip

#: Where a token of known shape is found: as an argument, in a variable, in a message.
_AROUND = (
    "python serve.py {}",
    "RuntimeError: 401 for {}, check it",
    '{{"model": "x", "opt": "{}"}}',
)

#: Secrets without a shape, in places that give them away.
PLACES = {
    "short options": ("x --pw [[{A9}]]", "x --passwd:[[{A9}]]", "x --pass=[[{A9}]]",
                      "x --db.pw [[{A9}]]", "x --user-pw=[[{A9}]]", "x --db-pw:[[{A9}]]"),
    "MySQL": ("mysql -u root -p[[{A9}]] db", "mysqldump -h db -p[[{A9}]] x > x.sql",
              "mysqladmin ping -p[[{A9}]]", "mariadb -uroot -p[[{A9}]]",
              "docker exec -it db mysql -p[[{A9}]]", "mysql -p'[[{A4} {A4}]]' db",
              "/usr/bin/mysql --user=me -p[[{A9}]] -e 'SELECT 1'"),
    "MongoDB": ("mongosh -u me -p [[{A9}]] db", "mongodump -u me -p [[{A9}]]"),
    "Redis": ("redis-cli -h db -a [[{A9}]] ping",),
    "sshpass": ("sshpass -p [[{A9}]] ssh gpu-1", "sshpass -p[[{A9}]] ssh gpu-1"),
    "registries": ("docker login -u me -p [[{A9}]] r.io", "podman login -p [[{A9}]] r.io",
                   "helm registry login -u me -p [[{A9}]] r.io",
                   "oras login r.io -u me -p [[{A9}]]", "az login -u me -p [[{A9}]]"),
    "curl": ("curl -u me:[[{A9}]] https://x.org", "curl -sume:[[{A9}]] https://x.org",
             "curl --user me:[[{A9}]] https://x.org", "curl --user=me:[[{A9}]] https://x.org",
             "curl -U me:[[{A9}]] https://x.org", "curl --proxy-user me:[[{A9}]] https://x.org"),
    "HTTPie": ("http -a me:[[{A9}]] https://x.org", "https --auth me:[[{A9}]] x.org"),
    "archives": ("7z x -p[[{A9}]] a.7z", "unzip -P [[{A9}]] a.zip", "zip -P [[{A9}]] a.zip b"),
    "other clients": ("ldapsearch -D cn=me -w [[{A9}]]", "smbclient //h/s -U me%[[{A9}]]",
                      "sqlcmd -S h -U sa -P [[{A9}]]", "cqlsh -u me -p [[{A9}]] h",
                      "ipmitool -H h -U me -P [[{A9}]] power status",
                      "openssl enc -aes-256-cbc -k [[{A9}]]",
                      "openssl rsa -passin pass:[[{A9}]] -in k.pem",
                      "xfreerdp /u:me /p:[[{A9}]] /v:h"),
    "logins": ("wandb login [[{H40}]]", "wandb login --relogin [[{H40}]]",
               "vault login [[s.{A24}]]", "ngrok config add-authtoken [[{A27}_{A20}]]",
               "snyk auth [[{H8}-{H4}-{H4}-{H4}-{H12}]]", "python -m wandb login [[{H40}]]"),
    "settings": ("aws configure set aws_secret_access_key [[{X40}]]",
                 "npm config set //r.io/:_authToken [[{A20}]]",
                 "git config --global github.token [[{H40}]]"),
    "pipes": ("sh -c 'echo [[{A9}]] | sudo -S nvidia-smi -lgc 1500'",
              "echo [[{A9}]] | docker login -u me --password-stdin"),
    "headers": ('curl -H "X-Vault-Token: [[{A20}]]" x', 'curl -H "X-Api-Key:[[{A20}]]" x',
                'curl -H "PRIVATE-TOKEN: [[{A20}]]" x',
                'curl -H "Authorization: Basic [[{X24}]]" x',
                'curl -H "Authorization: token [[{A20}]]" x'),
    "options": ("x --api-key=[[{A9}]]", "x --password [[{A9}]]", "x --wandb-key [[{H40}]]",
                "x --authkey [[{A20}]]"),
    "variables": ("DD_API_KEY=[[{H32}]] x", "PGPASSWORD=[[{A9}]] psql", "MYSQL_PWD=[[{A9}]] mysql",
                  "docker run -e WANDB_API_KEY=[[{H40}]] x"),
    "URLs": ("postgres://me:[[{A9}]]@h/x", "https://[[{A20}]]@github.com/x/y",
             "https://x.blob.core.windows.net/a?sv=1&sig=[[{X43}]]",
             "https://discord.com/api/webhooks/{D18}/[[{B68}]]"),
    "lists": ("['x', '--password', '[[{A9}]]']", '["x", "--pw", "[[{A4} {A4}]]", "y"]'),
    "JSON": ('{{"password": "[[{A9}]]"}}', "{{'db_pw': '[[{A9}]]'}}"),
    "connection strings": ("Server=h;Database=d;User=me;Password=[[{A9}]];",
                           "AccountName=x;AccountKey=[[{X86}]]==;EndpointSuffix=core"),
    "random": ("x --remote [[{A40}]]", "x [[{X44}]]", "MYVAR=[[{A32}]] x"),
}  # fmt: skip

_MARKED = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True)
class Planted:
    """A text with a secret in it."""

    kind: str
    text: str
    secret: str


def planted(seed: int = 1) -> Iterator[Planted]:
    """Yield texts with secrets of every kind; the same seed makes the same ones."""
    chance = random.Random(seed)
    for kind, shapes in TOKENS.items():
        for shape in shapes:
            marked = shape if "[[" in shape else f"[[{shape}]]"
            for around in _AROUND:
                yield _filled(kind, around.format(marked), chance)
    for kind, texts in PLACES.items():
        for text in texts:
            yield _filled(kind, text.replace("{{", "{").replace("}}", "}"), chance)


def _filled(kind: str, text: str, chance: random.Random) -> Planted:
    filled = _BLANK.sub(lambda blank: _made(blank[1], int(blank[2]), chance), text)
    marked = _MARKED.search(filled)
    assert marked
    return Planted(kind, _MARKED.sub(r"\1", filled), marked[1])


def _made(alphabet: str, length: int, chance: random.Random) -> str:
    """Return random characters, of which the first and the last are no punctuation.

    The second of many letters and digits is a digit, because nearly all tokens of issuers have one.
    """
    plain = _ALPHABETS["A"] if alphabet in "BX" else _ALPHABETS[alphabet]
    inner = chance.choices(_ALPHABETS[alphabet], k=length - 2) if length > 2 else []
    if length >= 16:
        inner[0] = chance.choice(_ALPHABETS["D"])
    ends = chance.choices(plain, k=min(length, 2))
    return "".join([ends[0], *inner, *ends[1:]])
