"""Machine code as it is issued: loops count eightfold, and rates tell the cycles."""

from tensorlang.machine.gpus import GPUS
from tensorlang.tuner.static.sass import kernels

TEXT = """
.text.once:
        /*0000*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0010*/                   LDG.E.128.CONSTANT R8, desc[UR4][R6.64] ;
        /*0020*/                   FADD R5, R4, R8 ;
        /*0030*/                   STG.E desc[UR4][R2.64], R5 ;
.L_x_1:
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   NOP;
.text.looped:
.L_x_3:
        /*0000*/                   LDS.64 R4, [R2] ;
        /*0010*/              @!P0 FFMA R5, R4, R8, R5 ;
        /*0020*/               @P0 BRA `(.L_x_3) ;
        /*0030*/                   MUFU.RCP R5, R0 ;
$__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath:
        /*0230*/                   IMAD.SHL.U32 R5, R0, 0x2, RZ ;
"""


COPIED = """
.text.copied:
        /*0000*/                   LDGSTS.E.BYPASS.128 [R2], desc[UR4][R4.64] ;
        /*0010*/                   LDSM.16.M88.4 R8, [R2] ;
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;
"""


def test_copies_past_the_registers_load_and_store():
    (copied,) = kernels(COPIED, GPUS["sm_90a"]).values()
    assert copied.moved == 2 * 16 + 16
    assert copied.cycles == 4 + 4 + 4 * 2048 / 1290  # Hopper's rate for `mma`
    (ampere,) = kernels(COPIED, GPUS["sm_80"]).values()
    assert ampere.cycles == 4 + 4 + 8


ROLES = """
.text.roles:
.L_x_1:
        /*0000*/                   STS.64 [R2], R4 ;
.L_x_2:
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0020*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0030*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0040*/               @P0 BRA `(.L_x_2) ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
.L_x_3:
        /*0060*/                   UTMALDG.2D [UR8], [UR16] ;
        /*0070*/               @P0 BRA `(.L_x_3) ;
"""


def test_loops_around_products_of_warpgroups_count_for_each():
    (roles,) = kernels(ROLES, GPUS["sm_90a"]).values()
    assert roles.around == {"HGMMA": (2 + 1 + 1 + 2) / 2, "UTMALDG": 1 + 2}
    assert roles.cycles == 8 * (4 + 2)  # a store and a branch around them


def test_the_kernels_of_a_text():
    found = kernels(TEXT, GPUS["sm_90a"])
    assert list(found) == ["once", "looped"]
    once, looped = found["once"], found["looped"]
    assert once.moved == 16 + 16 + 4
    assert once.together == 2
    assert looped.moved == 8 * 8
    # eight times a load at 32 a cycle, a product at 128, a branch at 64; one at 16
    assert looped.cycles == 8 * (4 + 1 + 2) + 8
    assert kernels(TEXT, GPUS["sm_80"])["looped"].cycles == 8 * (4 + 2 + 2) + 8
