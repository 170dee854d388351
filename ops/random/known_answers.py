"""Known answers for the random operators, published or computed by other systems.

Random123's are from its `kat_vectors` (Salmon et al., SC 2011), JAX's from JAX 0.10.2
with partitionable Threefry. Words are hexadecimal, numbers decimal.
"""

from __future__ import annotations

from typing import Final

# hexadecimal digits of pi: the words of the counter, then of the key
PI_32: Final = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89"
PI_64: Final = (
    "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89 "
    "452821e638d01377 be5466cf34e90c6c c0ac29b7c97c50dd 3f84d5b5b5470917"
)

# hash -> its words for counter and key all zeros, all ones, the digits of pi
RANDOM123: Final[dict[str, tuple[str, str, str]]] = {
    "threefry2x32-13": ("9d1c5ec6 8bd50731", "fd36d048 2d17272c", "ba3e4725 f27d669e"),
    "threefry2x32-20": ("6b200159 99ba4efe", "1cb996fc bb002be7", "c4923a9c 483df7a0"),
    "threefry2x32-32": ("cee3d47e a23dfd5c", "6e2fe0d0 b1b76f82", "e2827716 c3c05cdf"),
    "threefry4x32-13": (
        "531c7e4f 39491ee5 2c855a92 3d6abf9a",
        "c4189358 1c9cc83a d5881c67 6a0a89e0",
        "4aa71d8f 734738c2 431fc6a8 ae6debf1",
    ),
    "threefry4x32-20": (
        "9c6ca96a e17eae66 fc10ecd4 5256a7d8",
        "2a881696 57012287 f6c7446e a16a6732",
        "59cd1dbb b8879579 86b5d00c ac8b6d84",
    ),
    "threefry4x32-72": (
        "93171da6 9220326d b392b7b1 ff58a002",
        "60743f3d 9961e684 aab21c34 8c65fb7d",
        "09930adf 7f27bd55 9ed68ce1 97f803f6",
    ),
    "threefry2x64-13": (
        "f167b032c3b480bd e91f9fee4b7a6fb5",
        "ccdec5c917a874b1 4df53abca26ceb01",
        "c3aac71561042993 3fe7ae8801aff316",
    ),
    "threefry2x64-20": (
        "c2b6e3a8c2c69865 6f81ed42f350084d",
        "e02cb7c4d95d277a d06633d0893b8b68",
        "263c7d30bb0f0af1 56be8361d3311526",
    ),
    "threefry2x64-32": (
        "38ba854d7f13cfb3 d02fca729d54fadc",
        "6b532f4f6e288646 0388f1ec135ee18e",
        "dad492f32efbd0c4 b6d7d0cd1f193e84",
    ),
    "threefry4x64-13": (
        "4071fabee1dc8e05 02ed3113695c9c62 397311b5b89f9d49 e21292c3258024bc",
        "7eaed935479722b5 90994358c429f31c 496381083e07a75b 627ed0d746821121",
        "4361288ef9c1900c 8717291521782833 0d19db18c20cf47e a0b41d63ac8581e5",
    ),
    "threefry4x64-20": (
        "09218ebde6c85537 55941f5266d86105 4bd25e16282434dc ee29ec846bd2e40b",
        "29c24097942bba1b 0371bbfb0f6f4e11 3c231ffa33f83a1c cd29113fde32d168",
        "bb893fd42eac50eb 7ca8b22905f3443a e204b8dcb4daace7 3e1070a2327bfc09",
    ),
    "threefry4x64-72": (
        "94eeea8b1f2ada84 adf103313eae6670 952419a1f4b16d53 d83f13e63c9f6b11",
        "11518c034bc1ff4c 193f10b8bcdcc9f7 d024229cb58f20d8 563ed6e48e05183f",
        "af0cd57b6160473f 03db830d05bd1dea 4e72d5588850d160 c825972f0d576b49",
    ),
}
PHILOX: Final[dict[str, tuple[str, ...]]] = {
    "philox2x32": ("ff1dae59 6cd10df2", "2c3f628b ab4fd7ad", "dd7ce038 f62a4c12"),
    "philox4x32-7": (
        "5f6fb709 0d893f64 4f121f81 4f730a48",
        "5207ddc2 45165e59 4d8ee751 8c52f662",
        "4dfccaba 190a87f0 c47362ba b6b5242a",
    ),
    "philox4x32": (
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
    "philox4x64": (
        "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
    ),
}

# Random123's file repeats a word of pi in the key of threefry4x64
REPEATED_KEY: Final = (
    "452821e638d01377 be5466cf34e90c6c be5466cf34e90c6c c0ac29b7c97c50dd"
)
REPEATED: Final = {
    "threefry4x64": (
        "a7e8fde591651bd9 baafd0c30138319b 84a5c1a729e685b9 901d406ccebc1ba4"
    ),
    "threefry4x64-72": (
        "acf412ccaa3b2270 c9e99bd53f2e9173 43dad469dc825948 fbb19d06c8a2b4dc"
    ),
}

# seed -> results of jax.random for jax.random.key(seed)
JAX: Final[dict[int, dict[str, str]]] = {
    0: {
        "split": "1797259609 2579123966 928981903 3453687069 "
        "4146024105 2718843009 2467461003 3840466878",
        "fold_in 123": "2247515013 2545468385",
        "bits u8": "167 146 40 53 183 67",
        "bits u16": "20391 13970 3624 43061 15287 26947",
        "bits u32": "4070199207 4202968722 1427181096 2012915765 2447653815 710830403",
        "bits u64": "7719171245655871230 3989946895414531357 17807037942121513089 "
        "10597664315880824766 9817845818006947190 6546845030869727645",
        "uniform f32": "3f729a4e 3f7a8436 3eaa221c 3eeff550 3f11e43a 3e2979a0",
        "uniform f64": ".41845711171638644 .21629545460551136",
        "uniform f16": ".310546875 .212890625 .0546875 .65625",
        "uniform bf16": ".6484375 .5703125 .15625 .203125",
        "normal f32": "1.6226422 2.0252647 -0.43359444 -0.07861735",
        "bernoulli": "0 0 1 1 0 1 1 0 0 1 0 1 0 0 0 0",
        "randint 10": "9 0 2 3 1 7 2 3",
        "permutation": "0 1 5 6 4 3 2 7",
    },
    1: {
        "split": "507451445 1853169794 1948878966 4237131848 "
        "2441914641 3819641963 3568232559 2761185182",
        "fold_in 123": "3573174817 2367111901",
        "bits u8": "183 62 122 241 164 188",
        "bits u16": "14519 2110 46458 49137 37796 5820",
        "bits u32": "1883912375 2292451390 1915204986 1882898417 3854144420 2400655036",
        "bits u64": "2179487362436112514 8370371427069427784 10487943526538222699 "
        "15325442148188575646 3734272088042331913 13930169604854182351",
        "uniform f32": "3ee09470 3f08a408 3ee44f68 3ee0757c 3f65b992 3f0f1716",
        "randint 10": "6 7 0 3 8 4 8 1",
    },
    42: {
        "split": "1832780943 270669613 64467757 2916123636 "
        "2465931498 255383827 3134548294 894150801",
        "fold_in 123": "2238821533 719561804",
        "bits u8": "162 217 249 215 21 216",
        "bits u16": "5026 12505 63993 49623 29461 20184",
        "bits u32": "2098992034 2919706841 2646866425 2409546199 1935504149 2516274904",
        "bits u64": "7871734211187709741 276886910877598708 10591095138341673235 "
        "13462782411356743825 12687676868490354166 11878554724538143822",
        "uniform f32": "3efa3824 3f2e0730 3f1dc3f8 3f0f9ec0 3ee6bae4 3f15fb4e",
        "uniform f64": ".4267275666499091 .015010069515314584",
        "uniform f16": ".076171875 .1904296875 .9755859375 .7568359375",
        "uniform bf16": ".6328125 .84375 .96875 .8359375",
        "normal f32": "-0.028304616 0.46713185 0.29570296 0.15354592",
        "bernoulli": "1 0 0 0 1 0 1 0 0 0 1 0 0 0 1 0",
        "randint 10": "4 4 1 9 9 9 7 7",
        "permutation": "7 4 2 5 3 6 0 1",
    },
    1701: {
        "split": "741045208 1847055613 85238482 2594297577 "
        "56197195 961309823 927208350 676898860",
        "fold_in 123": "1465238190 1896941199",
        "bits u8": "37 59 52 178 111 60",
        "bits u16": "42789 29755 60468 48050 8815 25916",
        "bits u32": "1111271205 2679469115 974515252 521976754 2127438447 4120601916",
        "bits u64": "3182764935064573181 366096495144982249 241365115613244543 "
        "3982329540505020460 17180525131011940091 14047641688775088780",
        "uniform f32": "3e84794c 3f1fb574 3e6857b0 3df8e5d0 3efd9c44 3f759b64",
        "uniform f64": ".17253803285538472 .019846130768775838",
        "uniform f16": ".65234375 .453125 .921875 .732421875",
        "uniform bf16": ".140625 .2265625 .203125 .6953125",
        "normal f32": "-0.6472411 0.3156411 -0.74910474 -1.1673621",
        "bernoulli": "1 0 1 1 1 0 1 1 0 0 1 1 0 0 1 0",
        "randint 10": "2 8 7 4 2 3 1 0",
        "permutation": "1 6 5 4 0 2 7 3",
    },
}

# SHA-256 of the first 2^20 elements of key(1701), little-endian
HASHED_SEED: Final = 1701
HASHED_COUNT: Final = 1 << 20
SHA256: Final = {
    "bits": "2b6ff1742819c9db97e3c4873b3a1af2a5a2ea64584fd230aa69b25617843726",
    "uniform": "93554a695ecba5e69add53ffa83f099b2860f0d48abc31b11cc06ea5d62646c0",
}

# JAX's other implementations, seed 0
JAX_IMPLS: Final = {
    "threefry4x32": {
        "key": "2624366954 3783175782 4228967636 1381410776",
        "bits u32": "72491679 3548597643 4240196204 3855451913",
        "fold_in 5": "349763313 4270168222 1362707188 2315215058",
    },
    "philox4x32": {
        "key": "1713891541 3781805453",
        "bits u32": "2034863994 2176725434 2877061679 2649193319",
    },
    "philox2x32": {
        "key": "4280135257",
        "bits u32": "1770281948 2307865104 2982962561 1794371044",
    },
}

# swift-apis, Sources/Tensor/Random.swift: eight 64-bit words of a seed
SWIFT: Final = {
    123159812: "9411952874433594703 6992100569504761807 6249442510280393663 "
    "13096801615464354606 671569830597624217 9499516613746162591 "
    "14104268727839198528 2729105059420396781",
    58172950819076: "8181320043134006362 14375459274817572790 1051151592956420496 "
    "12482694246229339388 2543901658316819773 54584659268457468 "
    "4068621515934625604 10604176710283101491",
}

# TensorFlow Lite's RNG_BIT_GENERATOR, from the tests of TVM's importer; low words first
TFLITE: Final = {
    "threefry2x32": "43444564 2150618427 3979645651 3745730563 1672743891 4240503393",
    "philox4x32": "4031113034 1366700262 495645701 3051723414 89414891 1917262711",
}
TFLITE_U64: Final = (
    "9236835810183407956 16087790271692313299 18212823393184779219 "
    "2658481902456610144 16424712389986402477 16122702161355102743"
)

# tensorlang's packed stream of key(0): the words of each hash in order
PACKED: Final = (
    "1797259609 2579123966 928981903 3453687069 "
    "4146024105 2718843009 2467461003 3840466878"
)

# rate -> dropout of 1 .. 16 in f32 with key(0)
DROPOUT: Final = {
    0.5: "0 0 3 4 0 6 7 0 0 10 0 12 0 0 0 0",
    0.25: "0 0 3 4 5 6 7 8 9 10 0 12 13 14 0 0",
}
