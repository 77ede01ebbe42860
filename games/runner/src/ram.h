/* The variables of ram.s. */
#ifndef RAM_H
#define RAM_H

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned int u16;

#define SLOTS 5
#define FLAG_SLOT 4

extern u8 frame_counter, player_state, float_state, facing, player_speed, player_page, player_x, player_fall;
extern u8 player_y_page, player_y;
extern u8 enemy_active[SLOTS], enemy_type[SLOTS], enemy_state[SLOTS], enemy_speed[SLOTS], enemy_page[SLOTS];
extern u8 enemy_x[SLOTS], enemy_fall[SLOTS], enemy_y_page[SLOTS], enemy_y[SLOTS];
extern u8 query_page, query_x, query_y, draw_x, draw_y, draw_what, draw_how, oam_next, ready, split_on;
extern u8 show_page, show_x, column_ready, column_hi, column_lo, attr_hi, attr_lo;
extern u8 block_ready, block_hi, block_lo, hud_on, shimmer, idle;
#pragma zpsym("frame_counter")
#pragma zpsym("player_state")
#pragma zpsym("float_state")
#pragma zpsym("facing")
#pragma zpsym("player_speed")
#pragma zpsym("player_page")
#pragma zpsym("player_x")
#pragma zpsym("player_fall")
#pragma zpsym("player_y_page")
#pragma zpsym("player_y")
#pragma zpsym("enemy_active")
#pragma zpsym("enemy_type")
#pragma zpsym("enemy_state")
#pragma zpsym("enemy_speed")
#pragma zpsym("enemy_page")
#pragma zpsym("enemy_x")
#pragma zpsym("enemy_fall")
#pragma zpsym("enemy_y_page")
#pragma zpsym("enemy_y")
#pragma zpsym("query_page")
#pragma zpsym("query_x")
#pragma zpsym("query_y")
#pragma zpsym("draw_x")
#pragma zpsym("draw_y")
#pragma zpsym("draw_what")
#pragma zpsym("draw_how")
#pragma zpsym("oam_next")
#pragma zpsym("ready")
#pragma zpsym("split_on")
#pragma zpsym("show_page")
#pragma zpsym("show_x")
#pragma zpsym("column_ready")
#pragma zpsym("column_hi")
#pragma zpsym("column_lo")
#pragma zpsym("attr_hi")
#pragma zpsym("attr_lo")
#pragma zpsym("block_ready")
#pragma zpsym("block_hi")
#pragma zpsym("block_lo")
#pragma zpsym("hud_on")
#pragma zpsym("shimmer")
#pragma zpsym("idle")

extern u8 column_left[26], column_right[26], column_attr[7], block_tiles[4];
extern u8 player_x_sub, player_y_sub, fall_sub, block_buffer[416], joypad, screen_page, screen_x, lives, level;
extern u8 coins, world, area, mode, task, paused, score[6], coin_digits[2], timer[3];

/* Buttons. */
#define BUTTON_A 0x80
#define BUTTON_B 0x40
#define BUTTON_START 0x10
#define BUTTON_LEFT 0x02
#define BUTTON_RIGHT 0x01

/* States of the player. */
#define STATE_POLE 4
#define STATE_LEAVES 5
#define STATE_DEAD 6
#define STATE_ENTERS 7
#define STATE_PLAYS 8
#define STATE_DYING 11

#define FLOAT_STANDS 0
#define FLOAT_JUMPED 1
#define FLOAT_FELL 2
#define FLOAT_SLIDES 3

#define RIGHT 1
#define LEFT 2

#define TYPE_BEETLE 3
#define TYPE_GRUB 6
#define TYPE_HOPPER 14
#define TYPE_FLAG 49

#define MODE_TITLE 0
#define MODE_GAME 1
#define MODE_END 2
#define MODE_OVER 3

#define TASK_LOADS 0
#define TASK_PLAYS 3

/* console.s */
extern u8 tile_at(void);            /* block at (query_page, query_x, query_y); 0 off the map */
extern void draw_block_sprite(void); /* 16x16 sprite draw_what at (draw_x, draw_y), attributes draw_how */
extern void wait_frame(void);       /* until the frame is shown; then reads the joypad */
extern void screen_off(void);
extern void screen_on(void);
extern void hide_sprites(void);     /* all but the one that splits the screen */
#endif
