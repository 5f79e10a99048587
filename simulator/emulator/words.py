"""Words that the built-in tokenizer knows whole, and that generated text is made of."""

import tomllib

from windtunnel.simulator.emulator.shipped_text import shipped_text

WORDS = """
the of to and a in is it that for on with as be this are by from at or an not have has was will can if you we they he
she its which when there one all what do does use used using more other than then only some any each also after before
into out up so such no may must should would could been were their them these those how why where who your our my his
her but about over under between through during without within against while because since until both either neither
first last next previous new old same different every most many much few less very just even still already now here
again once always never often set get let make made take give see look find found know think want need try run start
stop end open close read write add remove change update create delete move copy check test build fix show hide load save
send receive call return pass fail handle wait keep hold put turn work play help ask answer follow lead begin continue
allow contain include require provide support expect accept reject match compare sort filter search replace insert
append
time day year week month hour minute second way thing part place case point side line word page book name number group
problem question reason result effect example idea fact state system program process service server client user agent
session request response message token prompt context model cache memory block queue step batch stream engine schedule
kernel thread task job worker node host port address path file folder directory project module package library class
function method object value key list dict tuple string integer float boolean array index range loop condition branch
error exception warning debug info level log trace event signal handler callback listener hook plugin option flag
argument parameter variable constant field property attribute type interface protocol schema format version release
commit branch merge pull push rebase review issue patch diff change history repository source code text data table row
column record query database connection pool socket buffer byte bit size length count total sum average mean median
maximum minimum limit threshold rate ratio percent latency throughput load usage share cost price budget plan goal
design layer stack graph tree edge leaf root parent child sibling depth width height color style theme screen window
panel button input output print display render draw paint view layout grid margin border font icon image video audio
import export default static dynamic public private global local async await yield lambda true false none null self def

elif else try except finally raise assert with pass break continue global print len range enumerate zip map max min sum
sorted open path json os sys re time math random typing collections itertools functools pathlib dataclass struct logger
config settings env main init args kwargs param params node item items entry entries key keys value values name names
left right top bottom front back inner outer upper lower start finish begin source target origin remote shared common
simple complex small large big little long short high low fast slow early late good bad better worse best right wrong
clear exact empty full ready busy idle active passive safe strict loose hard soft hot cold clean dirty valid invalid
available possible necessary important useful correct current recent original final single double multiple several
because however therefore otherwise instead rather quite almost enough perhaps maybe exactly probably usually actually
people world life hand eye head house water air light sound voice story letter paper table door street city country
language sentence paragraph section chapter title header footer summary note comment description reference document
documentation tutorial guide manual readme license author owner member team company community public market business
function const var export interface implements extends super this typeof instanceof undefined number string boolean
void enum struct impl trait pub mut fn use mod crate match loop while break unsafe where dyn box vec option some result
ok err unwrap clone iter into from string char usize isize println format return package import chan defer select func
error fmt err nil string map make append len cap range go type struct interface select switch case default const var
http https www com org html css js ts py rs go md txt toml yaml yml lock test tests src lib bin docs doc build dist
value_error key_error runtime status code ok id uuid url uri api sdk cli gui tui cpu gpu ram disk io ip tcp udp dns
install uninstall upgrade download upload compile link deploy release monitor measure record replay simulate emulate
validate verify parse serialize deserialize encode decode compress extract convert transform translate format normalise
tokenizer scheduler allocator iterator generator decorator container collection sequence pattern expression statement
declaration definition assignment operator operand syntax grammar parser lexer compiler interpreter debugger profiler
benchmark coverage fixture mock stub assertion expected actual received difference tolerance precision accuracy
connection timeout retry backoff attempt success failure partial complete pending running waiting finished cancelled
aborted killed assistant crashed restarted resumed paused blocked locked released acquired shared exclusive
atomic volatile
"""


def known() -> list[str]:
    """Common words, in a fixed order and without repetition: generated text is made of these."""
    return list(dict.fromkeys(WORDS.split()))


def frequent() -> list[str]:
    """Further words by frequency, from the data file beside this one."""
    text = shipped_text("words.toml")
    words: str = tomllib.loads(text)["words"]
    return words.split()
